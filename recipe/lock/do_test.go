package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

// A function runs under the hold.
func TestDo(t *testing.T) {
	for kind, create := range map[string]newLock{"lock": lock.New, "read": lock.NewRead, "write": lock.NewWrite} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				recipetest.Done{
					New:  func(s *session.Session) recipetest.Doer { return w.make(create, s, lock.Options{}) },
					Hold: recipetest.Found(lock.Hold),
					Lost: lock.ErrLost,
				}.Run(t, w.Srv, w.Net)
			})
		})
	}
}

// A function releases its lock with its own context, which ends by the release, and still learns the outcome.
func TestDoWithItsOwnContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		err := w.lock("a").Do(t.Context(), func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			return lock.Hold(ctx).Release(ctx)
		})
		if err != nil {
			t.Error(err)
		}
		w.wantContenders(0)
	})
}
