package partitioner_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/partitioner"
)

// On a context that never ends a member works until its function returns an error.
func TestRunOnEndlessContext(t *testing.T) {
	recipetest.OnEndless(t, func(ctx context.Context, e *recipetest.Endless) {
		p, err := partitioner.New(e.Session, path, []string{"x", "y"}, partitioner.Options{Identifier: "a", TimeBoundary: boundary})
		if err != nil {
			e.Fatal(err)
		}
		enough, done := errors.New("enough"), make(chan struct{})
		work := func(ctx context.Context, items []string) error {
			if len(items) != 2 {
				e.Errorf("items %q", items)
			}
			select {
			case <-done:
				return enough
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		err = e.GoesOn(func() error { return p.Run(ctx, work) }, func() {
			if !p.Acquired() {
				e.Errorf("state %v", p.State())
			}
			close(done)
		})
		if !errors.Is(err, enough) {
			e.Errorf("Run: %v, want %v", err, enough)
		}
	})
}
