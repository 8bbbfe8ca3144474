package semaphore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/semaphore"
	"github.com/kielgo/kiel/session"
)

// A function runs under the hold.
func TestDo(t *testing.T) {
	inWorld(t, func(w *world) {
		recipetest.Done{
			New:  func(s *session.Session) recipetest.Doer { return w.semaphoreIn(s, "a", 1) },
			Hold: recipetest.Found(semaphore.Hold),
			Lost: semaphore.ErrLost,
		}.Run(w, w.Srv, w.Net)
	})
}

// A handle has one lease, so it runs one function at a time. Who waits for that ends with its context.
func TestDoOneAtATime(t *testing.T) {
	inWorld(t, func(w *world) {
		sem := w.semaphore("a", 2)
		var running sync.WaitGroup
		first, goOn := make(chan struct{}), make(chan struct{})
		running.Go(func() {
			w.Check(sem.Do(w.Context(), func(context.Context) error { close(first); <-goOn; return nil }))
		})
		<-first
		ctx := w.Within(time.Minute)
		err := sem.Do(ctx, func(context.Context) error { w.Error("beside the first"); return nil })
		if _, ok := errors.AsType[*recipe.BlockedError](err); !ok || !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("got %v", err)
		}
		running.Go(func() {
			err := sem.Do(w.Context(), func(ctx context.Context) error {
				if !semaphore.Hold(ctx).Valid() {
					w.Error("the first has released it")
				}
				return ctx.Err()
			})
			w.Check(err)
		})
		synctest.Wait()
		close(goOn)
		running.Wait()
		w.wantZnodes(0, 0)
	})
}
