package allocator_test

import (
	"context"
	"testing"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
)

// On a context that never ends a PartitionAllocator runs until it is stopped.
func TestRunOnEndlessContext(t *testing.T) {
	recipetest.OnEndless(t, func(ctx context.Context, e *recipetest.Endless) {
		a, err := allocator.New(e.Session, "g", "a", allocator.Options{Seed: map[string][]int32{"t": {0, 1}}})
		noerr.Must(e, err)
		err = e.GoesOn(func() error { return a.Run(ctx) }, func() {
			if got := a.Allocation(); len(got["t"]) != 2 {
				e.Errorf("allocation %v", got)
			}
			noerr.Want(e, a.Stop(ctx))
		})
		noerr.Want(e, err)
	})
}
