package election_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/election"
)

// On a context that never ends a candidate leads until its function returns.
func TestRunOnEndlessContext(t *testing.T) {
	recipetest.OnEndless(t, func(ctx context.Context, e *recipetest.Endless) {
		candidate, err := election.New(e.Session, path, election.Options{Identifier: "a"})
		if err != nil {
			e.Fatal(err)
		}
		enough, done := errors.New("enough"), make(chan struct{})
		lead := func(ctx context.Context) error {
			select {
			case <-done:
				return enough
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		err = e.GoesOn(func() error { return candidate.Run(ctx, lead) }, func() {
			if !candidate.Leading() {
				e.Error("does not lead")
			}
			close(done)
		})
		if !errors.Is(err, enough) || len(e.Server.Children(path)) != 0 {
			e.Errorf("Run: %v, candidates %q", err, e.Server.Children(path))
		}
	})
}
