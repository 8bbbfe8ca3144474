package ownership_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/ownership"
)

// A membership that is to stay stays once all claims are released, and not before: the session's end would come too late for
// them.
func TestKeepComesAfterTheReleases(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.owning("a", "t:0 t:1", memberOptions{drain: 3 * time.Second})
		b := w.join("b", memberOptions{})
		a.brain.keep = func() {
			for _, item := range []string{"t:0", "t:1"} {
				if w.holder(item) != 0 {
					t.Errorf("kept before %s was released", item)
				}
			}
		}
		a.quitFor(ownership.ErrKeep)
		<-a.done
		if a.err != nil || !a.owner.Kept() || a.brain.hasLeft() {
			t.Errorf("Run: %v, kept %v, left %v", a.err, a.owner.Kept(), a.brain.hasLeft())
		}
		time.Sleep(time.Minute)
		if got := b.owned(); got != "" {
			t.Errorf("b owns %q", got)
		}
		w.wantEvents("a", "t:0", "joined claimed revoking releasing left")
	})
}

// Only what ends in order is kept: not with a handler that is stuck, whether its claim could be released or not.
func TestKeepNeedsOrder(t *testing.T) {
	for what, opts := range map[string]ownership.Options{
		"until the end":    {StopTimeout: 3 * time.Second},
		"its time is over": {StopTimeout: 10 * time.Second, RebalanceTimeout: time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				free := make(chan struct{})
				defer w.close()
				defer close(free)
				stuck := func(context.Context, *ownership.Claim) error { <-free; return nil }
				a := w.owning("a", "t:0", memberOptions{Options: opts, handler: stuck})
				a.quitFor(ownership.ErrKeep)
				<-a.done
				if a.err == nil || a.owner.Kept() {
					t.Errorf("Run: %v, kept %v", a.err, a.owner.Kept())
				}
			})
		})
	}
}

// A member that leaves for another reason removes its znode first, as all do.
func TestOnlyItsCauseKeeps(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.owning("a", "t:0", memberOptions{})
		a.quit()
		<-a.done
		if a.err != nil || a.owner.Kept() || !a.brain.hasLeft() {
			t.Errorf("Run: %v, kept %v, left %v", a.err, a.owner.Kept(), a.brain.hasLeft())
		}
	})
}
