package ownership_test

import (
	"context"
	"testing"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/ownership"
)

// On a context that never ends an Owner runs until it is stopped.
func TestRunOnEndlessContext(t *testing.T) {
	recipetest.OnEndless(t, func(ctx context.Context, e *recipetest.Endless) {
		alloc, err := allocator.New(e.Session, "g", "a", allocator.Options{Seed: map[string][]int32{"t": {0, 1}}})
		noerr.Must(e, err)
		o, err := ownership.New(alloc, func(ctx context.Context, _ *ownership.Claim) error { <-ctx.Done(); return nil }, ownership.Options{})
		noerr.Must(e, err)
		err = e.GoesOn(func() error { return o.Run(ctx) }, func() {
			if n := len(o.Owned()); n != 2 {
				e.Errorf("owns %d partitions", n)
			}
			noerr.Want(e, o.Stop(ctx))
		})
		if err != nil || len(e.Server.Children(owners)) != 0 {
			e.Errorf("Run: %v, claims %q", err, e.Server.Children(owners))
		}
	})
}
