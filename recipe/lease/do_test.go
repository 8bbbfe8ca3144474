package lease_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/session"
)

// A function runs under the hold.
func TestDo(t *testing.T) {
	inWorld(t, func(w *world) {
		recipetest.Done{
			New: func(s *session.Session) recipetest.Doer {
				return w.leaseIn(s, lease.Options{Identifier: "a", Duration: time.Hour})
			},
			Hold: recipetest.Found(lease.Hold),
			Lost: lease.ErrLost,
		}.Run(w, w.Srv, w.Net)
	})
}

// A handle has one hold, so it runs one function at a time. Who waits for that ends with its context, and a function may leave
// the lease to run out.
func TestDoOneAtATime(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lease("a")
		var running sync.WaitGroup
		first, goOn := make(chan struct{}), make(chan struct{})
		running.Go(func() {
			w.Check(l.Do(w.Context(), func(context.Context) error { close(first); <-goOn; return nil }))
		})
		<-first
		ctx := w.Within(time.Second)
		if err := l.Do(ctx, func(context.Context) error { w.Error("beside the first"); return nil }); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("got %v", err)
		}
		close(goOn)
		running.Wait()
		w.wantHolder("")
		w.Check(l.Do(w.Context(), func(ctx context.Context) error { lease.Hold(ctx).Detach(); return nil }))
		w.wantHolder("a")
		err := w.lease("b").Do(w.Context(), func(context.Context) error { w.Error("called"); return nil })
		if !errors.Is(err, lease.ErrNotObtained) {
			w.Errorf("got %v", err)
		}
	})
}

// Values are those of Do's context, not those with which the hold was obtained before.
func TestDoHasItsOwnValues(t *testing.T) {
	inWorld(t, func(w *world) {
		type key struct{}
		type earlier struct{}
		l := w.lease("a")
		ctx := context.WithValue(context.WithValue(w.Context(), key{}, "earlier"), earlier{}, "earlier")
		held, err := l.Obtain(ctx)
		w.Must(err)
		if got := held.Context().Value(earlier{}); got != nil {
			w.Errorf("the hold's context has a value of Obtain's: %v", got)
		}
		err = l.Do(context.WithValue(w.Context(), key{}, "own"), func(ctx context.Context) error {
			if got, old := ctx.Value(key{}), ctx.Value(earlier{}); got != "own" || old != nil {
				w.Errorf("got %v, and %v of an earlier call", got, old)
			}
			return nil
		})
		w.Check(err)
	})
}
