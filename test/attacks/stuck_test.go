package attacks_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/zktest"
)

// Execution §10: of 50 handlers one ignores that its partition was revoked. The other 49 are at work and did nothing wrong: those
// that go elsewhere are handed over, those that stay are not to notice.
func TestHandlerThatIgnoresRevocation(t *testing.T) {
	withstood(t, bubble(t, zktest.Options{}, func(w *world) *outcome {
		const n = 50
		release := make(chan struct{})
		opts := options{allocator: allocator.Options{Seed: seed(n)}, ownership: ownership.Options{RebalanceTimeout: 5 * time.Second}}
		stuck := opts
		stuck.handler = func(m *member) ownership.Handler {
			return func(ctx context.Context, c *ownership.Claim) error {
				err := m.act(ctx, c)
				if c.Partition() == 1 {
					<-release
				}
				return err
			}
		}
		a := w.member("a", stuck)
		w.within(10*time.Second, "a owns all", func() bool { return len(a.owner.Owned()) == n })
		time.Sleep(10 * time.Second)
		b := w.member("b", opts)
		took, all := poll(20*time.Second, func() bool { return len(b.owner.Owned()) == n/2 })
		time.Sleep(30 * time.Second)
		lost := 0
		for _, e := range a.journal.events() {
			switch {
			case e.Event == eventlog.Untrusted:
				lost += n/2 - 1
			case e.Event == eventlog.Lost && *e.Partition != 1:
				lost++
			}
		}
		told := false
		a.mu.Lock()
		for _, err := range a.errs {
			told = told || errors.Is(err, ownership.ErrStuck)
		}
		a.mu.Unlock()
		close(release)
		o := w.close()
		switch {
		case lost > 0:
			o.harmed(dropped, "%d claims of handlers at work were dropped with the one that hangs", lost)
		case !all:
			o.harmed(unowned, "b does not get its share")
		}
		if !told {
			o.harmed(otherHarm, "ErrStuck was not told")
		}
		o.figure("hand-over", took)
		return o
	}))
}
