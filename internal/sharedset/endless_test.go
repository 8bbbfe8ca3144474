package sharedset_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/session"
)

// On a context that never ends a Set runs until its session ends.
func TestRunOnEndlessContext(t *testing.T) {
	recipetest.OnEndless(t, func(ctx context.Context, e *recipetest.Endless) {
		set, err := sharedset.New(e.Session, "/set", sharedset.Options{})
		if err != nil {
			e.Fatal(err)
		}
		err = e.GoesOn(func() error { return set.Run(ctx) }, func() {
			if _, err := set.Add(ctx, "t:0"); err != nil {
				e.Errorf("Add: %v", err)
			}
			if err := set.Refresh(ctx); err != nil || len(set.View().Items) != 1 {
				e.Errorf("Refresh: %v, view %+v", err, set.View())
			}
			e.Close(ctx)
		})
		if !errors.Is(err, session.ErrClosed) {
			e.Errorf("Run: %v, want %v", err, session.ErrClosed)
		}
	})
}
