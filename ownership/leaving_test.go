package ownership_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/zktest"
)

// The time to leave is over while a claim has no answer yet, and the session could live on. The claim does not stay behind
// without an owner: the session is given up, and Run says so.
func TestLeaveWithAClaimUnderWay(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.owning("a", "t:0", memberOptions{Options: ownership.Options{StopTimeout: time.Second}}) // a silent link is noticed later
		w.assign(map[string]string{})
		w.within(time.Second, "released", func() bool { return w.holder("t:0") == 0 })
		ses := a.sessionID()
		a.client.BlackHole(zktest.ToClient)
		w.assign(map[string]string{"a": "t:0"})
		w.within(time.Second, "the claim stands", func() bool { return w.holder("t:0") == ses })
		a.quit()
		<-a.done
		a.client.Heal()
		if !errors.Is(a.err, ownership.ErrStuck) {
			t.Errorf("Run: %v, want ErrStuck", a.err)
		}
		w.within(2*timeout, "the claim is gone", func() bool { return w.holder("t:0") == 0 })
	})
}

// A plan that comes while the member znode is being removed revokes nothing: the claims are revoked when the others know that the
// member is gone.
func TestPlanWhileTheMemberZnodeIsRemoved(t *testing.T) {
	inWorld(t, func(_ *testing.T, w *world) {
		a := w.owning("a", "t:0", memberOptions{})
		gone := make(chan struct{})
		a.brain.leaveIn = gone
		a.quit()
		time.Sleep(time.Second)
		w.assign(map[string]string{"a": "t:0", "b": "t:1"})
		time.Sleep(time.Second)
		w.wantEvents("a", "t:0", "joined claimed")
		close(gone)
		<-a.done
		w.wantEvents("a", "t:0", "joined claimed revoking releasing left")
	})
}

// The time of a handler counts from its first reason to finish. When its partition goes to another member, and then the member
// leaves, the handler does not get its time again.
func TestLeaveDoesNotRestartTheTimeOfHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		free := make(chan struct{})
		defer w.close()
		defer close(free)
		a := w.owning("a", "t:0", memberOptions{
			Options: ownership.Options{RebalanceTimeout: 10 * time.Second, StopTimeout: time.Minute},
			handler: func(context.Context, *ownership.Claim) error { <-free; return nil },
		})
		b := w.join("b", memberOptions{})
		time.Sleep(time.Second)
		began := time.Now()
		w.assign(map[string]string{"b": "t:0"})
		time.Sleep(8 * time.Second)
		a.quit()
		b.owns(time.Minute, "t:0")
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("b owns it after %v, its handler had 10s", took)
		}
	})
}
