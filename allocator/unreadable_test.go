package allocator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/status"
)

func TestBadRecordsAndItems(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		r.partitions("t:0", "t:1", "nonsense", "t:x")
		r.show(&party.View{Incarnation: r.inc, Joined: true, Members: []party.Member{
			{Name: "a", Data: []byte("\xff{")}, {Name: "b"}, {Name: "c", Err: errors.New("70000 bytes")},
		}})
		s := r.want(status.Started, "t:1")
		if !errors.Is(s.Err, kiel.ErrInvalidPartition) || !strings.Contains(s.Err.Error(), "nonsense") || !strings.Contains(s.Err.Error(), "t:x") {
			r.Error(s.Err)
		}
		err := r.failed()
		if !errors.Is(err, kiel.ErrInvalidPartition) || !errors.Is(err, ErrBadRecord) || !strings.Contains(err.Error(), "70000") {
			r.Error(err)
		}
		sleep(time.Minute)
		r.partitions("t:0", "t:1", "t:2", "t:x")
		if err := r.failed(); strings.Contains(fmt.Sprint(err), "nonsense") || !errors.Is(err, kiel.ErrInvalidPartition) {
			r.Error("second report:", err)
		}
		sleep(time.Minute)
		r.partitions("t:0", "t:1", "t:2")
		if s := r.Snapshot(); s.Err != nil || r.failed() != nil {
			r.Error(s.Err)
		}
	})
}

func TestUnreadableSet(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		r.partitions("t:0", "t:1")
		r.join("a", "b")
		sleep(time.Minute)
		r.told()
		garbage := errors.New("not JSON")
		r.showSet(&sharedset.View{Items: []string{"t:0", "t:1"}, Exists: true, Czxid: 1, Err: garbage})
		if s := r.want(status.Started, "t:1"); !errors.Is(s.Err, garbage) || !s.Joined {
			r.Error(s.Err)
		}
		sleep(time.Minute)
		r.join("b")
		if s := r.want(status.MemberGone, "t:0 t:1"); !errors.Is(s.Err, garbage) {
			r.Error(s.Err)
		}
		sleep(time.Minute)
		r.partitions("t:0", "t:1")
		if s := r.want(status.MemberGone, "t:0 t:1"); s.Err != nil {
			r.Error(s.Err)
		}
		if got := r.told(); got != "+t:0 -" {
			r.Errorf("told %q", got)
		}
		if err := r.failed(); err == nil || err.Error() != "allocator: "+garbage.Error() {
			r.Errorf("OnError was told %v", err)
		}
	})
}

func TestUnreadableFromTheStart(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		garbage := errors.New("not JSON")
		r.join("b")
		r.showSet(&sharedset.View{Exists: true, Czxid: 1, Err: garbage})
		if s := r.want(status.Started, ""); !errors.Is(s.Err, garbage) {
			r.Error(s.Err)
		}
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		if err := r.Ready(ctx); !errors.Is(err, garbage) {
			r.Error("ready:", err)
		}
		r.partitions("t:0")
		if s := r.want(status.TopicAdded, "t:0"); s.Err != nil {
			r.Error(s.Err)
		}
		noerr.Want(r, r.Ready(r.Context()))
	})
}

// TestUnreadableWhileJoining: the set is repaired to what it was, so that there is nothing to compute anew but that all is ready
// now.
func TestUnreadableWhileJoining(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		r.join()
		r.partitions("t:0")
		garbage := errors.New("not JSON")
		r.showSet(&sharedset.View{Items: []string{"t:0"}, Exists: true, Czxid: r.czxid, Err: garbage})
		r.join("b")
		if s := r.want(status.MemberJoined, "t:0"); !errors.Is(s.Err, garbage) {
			r.Error(s.Err)
		}
		r.partitions("t:0")
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		noerr.Want(r, r.Ready(ctx))
	})
}
