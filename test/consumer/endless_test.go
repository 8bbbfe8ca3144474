package consumer_test

import (
	"testing"

	"github.com/kielgo/kiel/internal/testonly/endless"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
)

// Consume on a context that never ends goes on until the group is closed.
func TestConsumeOnEndlessContext(t *testing.T) {
	for name, ctx := range endless.Contexts(t) {
		t.Run(name, func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				m := r.member("a", nil)
				err := recipetest.GoesOn(t, func() error { return m.group.Consume(ctx, []string{topic}, m.h) }, func() {
					r.produce(3, 0, 1)
					until(t, "all is read", func() bool { return m.h.count() == 6 })
					if err := m.group.Close(); err != nil {
						t.Errorf("Close: %v", err)
					}
				})
				if err != nil {
					t.Errorf("Consume: %v", err)
				}
				r.check(false)
			})
		})
	}
}
