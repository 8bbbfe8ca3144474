package watched_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/session"
)

// On a context that never ends a Reader runs until its session ends.
func TestRunOnEndlessContext(t *testing.T) {
	recipetest.OnEndless(t, func(ctx context.Context, e *recipetest.Endless) {
		r := reader(e.Session)
		err := e.GoesOn(func() error { return r.Run(ctx) }, func() {
			noerr.Want(e, e.Server.Create(path, []byte("text")))
			if err := r.Refresh(ctx); err != nil || r.View().text != "text" {
				e.Errorf("Refresh: %v, view %+v", err, r.View())
			}
			e.Close(ctx)
		})
		if !errors.Is(err, session.ErrClosed) {
			e.Errorf("Run: %v, want %v", err, session.ErrClosed)
		}
	})
}
