package partitioner_test

import (
	"context"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/session"
)

// At the end of trust Valid is false at once, and the context ends a moment later.
func TestValid(t *testing.T) {
	inWorld(t, func(w *world) {
		recipetest.InvalidBeforeItsContextEnds(w, w.Net, func(s *session.Session) recipetest.Relied {
			m := w.memberIn(s, "p0", []string{"0", "1"}, partitioner.Options{})
			m.start()
			m.wantItems("0", "1")
			return m.Allocation()
		})
	})
}

// A function in Run finds its allocation, for its Token, Node and Valid, also when the set is to be released.
func TestHold(t *testing.T) {
	type key struct{}
	inWorld(t, func(w *world) {
		m := w.member("p0", []string{"0"}, partitioner.Options{})
		done := make(chan error)
		ctx, cancel := context.WithCancel(context.WithValue(w.Context(), key{}, "of Run"))
		calls := 0
		go func() {
			done <- m.Run(ctx, func(ctx context.Context, items []string) error {
				if calls++; calls > 1 {
					return nil
				}
				a := partitioner.Hold(ctx)
				if !a.Valid() || a != m.Allocation() || partitioner.Hold(a.Context()) != a || ctx.Value(key{}) != "of Run" {
					w.Errorf("not the allocation of %q", items)
				}
				w.join("p1", "0")
				<-ctx.Done()
				m.wait(partitioner.Release)
				if a.Valid() || a.Token("0") == 0 || a.Node("0") == "" || m.Allocation() != nil {
					w.Errorf("in RELEASE: %v, %d, %q", a.Valid(), a.Token("0"), a.Node("0"))
				}
				return nil
			})
		}()
		time.Sleep(time.Minute)
		cancel()
		if err := <-done; err != nil || calls < 2 {
			w.Errorf("%d calls: %v", calls, err)
		}
	})
}

// A nil allocation is never valid and has no items.
func TestNoAllocation(t *testing.T) {
	a := partitioner.Hold(t.Context())
	if a != nil || a.Valid() || a.Items() != nil || a.Token("0") != 0 || a.Node("0") != "" {
		t.Errorf("%v, %v, %q, %d, %q", a, a.Valid(), a.Items(), a.Token("0"), a.Node("0"))
	}
}
