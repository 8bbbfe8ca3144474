package allocator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

// A refusal of the members is reported and listed until it is over, and the mapping stays.
func TestMembersRefused(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		r.begin("t:0")
		r.want(status.Started, "t:0")
		before := *r.members.view
		refused := before
		refused.Err = fmt.Errorf("party: /m: %w", session.ErrNoAuth)
		r.show(&refused)
		s := r.want(status.Started, "t:0")
		if !s.Joined || !errors.Is(s.Err, session.ErrNoAuth) {
			r.Errorf("joined %t, err %v", s.Joined, s.Err)
		}
		again := refused
		r.show(&again)
		if err := r.failed(); !errors.Is(err, session.ErrNoAuth) || strings.Count(err.Error(), "acl") != 1 {
			r.Errorf("OnError: %v", err)
		}
		troubles := r.loop.errs.Troubles()
		if len(troubles) != 1 || troubles[0].Kind != kindMembership || troubles[0].Until != nil {
			r.Errorf("troubles %+v", troubles)
		}
		r.show(&before)
		if s := r.want(status.Started, "t:0"); s.Err != nil {
			r.Error(s.Err)
		}
		if troubles := r.loop.errs.Troubles(); len(troubles) != 1 || troubles[0].Until == nil {
			r.Errorf("troubles %+v", troubles)
		}
	})
}

// A member that joins again and was refused before it could read anything says so.
func TestMembersRefusedBeforeAnythingWasRead(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		r.partitions("t:0")
		r.members.put(&party.View{Version: 1, Err: fmt.Errorf("party: /m: %w", session.ErrQuotaExceeded)})
		synctest.Wait()
		if err := r.failed(); !errors.Is(err, session.ErrQuotaExceeded) {
			r.Errorf("OnError: %v", err)
		}
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if err := r.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) {
			r.Error("ready:", err)
		}
		r.version++
		r.join("b")
		if s := r.want(status.Started, "t:0"); s.Err != nil {
			r.Error(s.Err)
		}
	})
}
