package allocator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

func TestFirstSnapshot(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		r.join("a", "c")
		if r.Snapshot() != nil {
			r.Fatal("a snapshot without a set")
		}
		r.partitions("t:0", "t:1", "t:2")
		s := r.want(status.Started, "")
		if s.Joined || list(s.Partitions) != "t:0 t:1 t:2" || fmt.Sprint(s.Members) != "[a c]" || s.Version != 1 {
			r.Errorf("%+v", s)
		}
		if got := fmt.Sprint(s.Mapping()); got != "map[a:map[t:[0 2]] c:map[t:[1]]]" {
			r.Error(got)
		}
		r.join("a", "b", "c") // we: at once
		s = r.want(status.MemberJoined, "t:1")
		noerr.Want(r, r.Ready(r.Context()))
		if owner, ok := s.Planned(kiel.Partition{Topic: "t", ID: 2}); owner != "c" || !ok {
			r.Error(owner, ok)
		}
		if owner, ok := s.Planned(kiel.Partition{Topic: "t", ID: 3}); ok {
			r.Error(owner)
		}
		if got := r.told(); got != "+ -, +t:1 -" {
			r.Error(got)
		}
		noerr.Want(r, r.stop())
		r.want(status.MemberJoined, "")
		if got := r.told(); got != "+ -t:1" {
			r.Error(got)
		}
	})
}

func TestLoneChangeIsActedOnAtOnce(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		r.begin("t:0", "t:1", "t:2", "t:3")
		for i, names := range [][]string{{"a", "b"}, {"b"}, {"b", "c"}} {
			sleep(time.Minute)
			start := time.Now()
			r.join(names...)
			s := r.Snapshot()
			if len(s.Members) != len(names) || !s.At.Equal(start) {
				r.Errorf("change %d: members %v after %v", i, s.Members, s.At.Sub(start))
			}
		}
	})
}

func TestStormIsOneRebalance(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		r.begin("t:0")
		sleep(time.Minute)
		before := r.published()
		names := []string{"b"}
		for i := range 50 {
			names = append(names, fmt.Sprintf("m%02d", i))
			r.join(names...)
			sleep(10 * time.Millisecond)
		}
		sleep(time.Minute)
		if n := r.published() - before; n != 2 {
			r.Errorf("%d rebalances, want 2", n)
		}
		if got := r.Snapshot().Members; len(got) != 51 {
			r.Errorf("%d members", len(got))
		}
	})
}

func TestUnchangedViewIsNoRebalance(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		r.partitions("t:0")
		r.join("a", "b")
		sleep(time.Minute)
		before := r.published()
		r.join("a", "b")
		r.partitions("t:0")
		sleep(time.Minute)
		if n := r.published() - before; n != 0 {
			r.Errorf("%d rebalances", n)
		}
		v := &party.View{Incarnation: r.inc, Joined: true, Members: []party.Member{{Name: "a", Czxid: 2}, {Name: "b", Czxid: 1}}}
		r.show(v)
		if n := r.published() - before; n != 1 {
			r.Errorf("a came back under its name: %d rebalances", n)
		}
	})
}

// TestViewsOfTwoIncarnationsAreNotMixed is the catching up after a loss.
func TestViewsOfTwoIncarnationsAreNotMixed(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		r.partitions("t:0", "t:1")
		r.join("a", "b")
		old := r.inc
		r.want(status.Started, "t:1")
		r.lose(session.ErrTrustLost)
		s := r.want(status.Started, "")
		if s.Joined || s.Incarnation != old || !errors.Is(s.Err, session.ErrTrustLost) {
			r.Errorf("joined %t, err %v", s.Joined, s.Err)
		}
		if fmt.Sprint(s.Mapping()) != "map[a:map[t:[0]] b:map[t:[1]]]" {
			r.Error("the last good mapping is gone")
		}
		r.incarnate()
		r.join("b")
		sleep(time.Hour)
		if s := r.want(status.Started, ""); s.Incarnation != old || len(s.Members) != 2 {
			r.Errorf("mixed: %v", s.Members)
		}
		r.partitions("t:0", "t:1", "t:2")
		s = r.want(status.SessionLost, "t:0 t:1 t:2")
		if s.Incarnation != r.inc || !s.Joined || s.Err != nil {
			r.Errorf("joined %t, err %v", s.Joined, s.Err)
		}
		if got := r.told(); !strings.HasSuffix(got, "+t:1 -, + -t:1, +t:0 t:1 t:2 -") {
			r.Error(got)
		}
		// The same in another incarnation is another snapshot.
		r.incarnate()
		r.partitions("t:0", "t:1", "t:2")
		r.join("b")
		if s := r.want(status.SessionLost, "t:0 t:1 t:2"); s.Incarnation != r.inc {
			r.Error("no snapshot of the new incarnation")
		}
		if err := r.failed(); !errors.Is(err, session.ErrTrustLost) {
			r.Error(err)
		}
	})
}

func TestViewsOfAnEndedIncarnation(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		r.lose(session.ErrSessionExpired)
		r.partitions("t:0")
		r.join("b")
		if s := r.want(status.Started, ""); s.Joined || !errors.Is(s.Err, session.ErrSessionExpired) {
			r.Errorf("joined %t, err %v", s.Joined, s.Err)
		}
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if err := r.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, session.ErrSessionExpired) {
			r.Error("ready:", err)
		}
	})
}

func TestLeavingEmptiesTheOwnShare(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		r.partitions("t:0", "t:1")
		r.join("a", "b")
		r.join("a")
		s := r.want(status.Stopped, "")
		if s.Joined || fmt.Sprint(s.Mapping()) != "map[a:map[t:[0 1]]]" {
			r.Error(s.Mapping())
		}
	})
}

// TestNamesakeIsNotUs: our name is among the members, but the znode is not our own.
func TestNamesakeIsNotUs(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		r.partitions("t:0", "t:1")
		r.show(&party.View{Incarnation: r.inc, Members: []party.Member{{Name: "a"}, {Name: "b"}}})
		s := r.want(status.Started, "")
		if fmt.Sprint(s.Mapping()) != "map[a:map[t:[0]] b:map[t:[1]]]" {
			r.Error("others see another mapping than", s.Mapping())
		}
	})
}

func TestNameTakenWhileWeOwn(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		r.begin("t:0")
		r.want(status.Started, "t:0")
		r.members.end <- fmt.Errorf("party: %w", ErrNameTaken)
		if err := <-r.ran; !errors.Is(err, ErrNameTaken) {
			r.Error(err)
		}
		s := r.want(status.Started, "")
		if s.Joined || !errors.Is(s.Err, ErrNameTaken) || s.Incarnation != r.inc {
			r.Errorf("joined %t, err %v", s.Joined, s.Err)
		}
		if got := r.told(); !strings.HasSuffix(got, "+ -t:0") {
			r.Error(got)
		}
		if err := r.Rebalance(r.Context()); !errors.Is(err, ErrStopped) || !errors.Is(err, ErrNameTaken) {
			r.Error("rebalance:", err)
		}
	})
}

func TestNameTakenBeforeAnythingWasRead(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		r.members.end <- ErrNameTaken
		if err := <-r.ran; !errors.Is(err, ErrNameTaken) {
			r.Error(err)
		}
		if s := r.Snapshot(); s == nil || s.Joined || !errors.Is(s.Err, ErrNameTaken) {
			r.Error(s)
		}
		if err := r.Ready(r.Context()); !errors.Is(err, ErrNameTaken) {
			r.Error("ready:", err)
		}
	})
}

// TestOvertakenViews: a refresh brings newer views than those on their way.
func TestOvertakenViews(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		synctest.Wait() // the loop's fields are ours while it waits
		l := r.loop
		l.onMembers(&party.View{Version: 2})
		l.onMembers(&party.View{Version: 1})
		l.onSet(&sharedset.View{Version: 4})
		l.onSet(&sharedset.View{Version: 3})
		if l.members.Version != 2 || l.set.Version != 4 {
			r.Errorf("back to %d and %d", l.members.Version, l.set.Version)
		}
	})
}
