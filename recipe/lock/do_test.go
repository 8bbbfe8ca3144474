package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

// A function runs under the hold.
func TestDo(t *testing.T) {
	for kind, create := range map[string]newLock{"lock": lock.New, "read": lock.NewRead, "write": lock.NewWrite} {
		t.Run(kind, func(t *testing.T) {
			inWorld(t, func(w *world) {
				recipetest.Done{
					New:  func(s *session.Session) recipetest.Doer { return w.make(create, s, lock.Options{}) },
					Hold: recipetest.Found(lock.Hold),
					Lost: lock.ErrLost,
				}.Run(w, w.Srv, w.Net)
			})
		})
	}
}

// A function releases its lock with its own context, which ends by the release, and still learns the outcome.
func TestDoWithItsOwnContext(t *testing.T) {
	inWorld(t, func(w *world) {
		err := w.lock("a").Do(w.Context(), func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			return lock.Hold(ctx).Release(ctx)
		})
		w.Check(err)
		w.wantContenders(0)
	})
}
