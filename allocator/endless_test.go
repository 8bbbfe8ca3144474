package allocator_test

import (
	"context"
	"testing"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
)

// On a context that never ends a PartitionAllocator runs until it is stopped.
func TestRunOnEndlessContext(t *testing.T) {
	recipetest.OnEndless(t, func(ctx context.Context, e *recipetest.Endless) {
		a, err := allocator.New(e.Session, "g", "a", allocator.Options{Seed: map[string][]int32{"t": {0, 1}}})
		if err != nil {
			e.Fatal(err)
		}
		err = e.GoesOn(func() error { return a.Run(ctx) }, func() {
			if got := a.Allocation(); len(got["t"]) != 2 {
				e.Errorf("allocation %v", got)
			}
			if err := a.Stop(ctx); err != nil {
				e.Errorf("Stop: %v", err)
			}
		})
		if err != nil {
			e.Errorf("Run: %v", err)
		}
	})
}
