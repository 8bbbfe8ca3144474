package allocfn

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestHeap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h heap
		var model []uint64
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			if len(model) > 0 && rapid.Bool().Draw(t, "pop") {
				if got := h.pop(); got != model[0] {
					t.Fatalf("got %d, want %d", got, model[0])
				}
				model = model[1:]
				continue
			}
			x := rapid.Uint64Range(0, 30).Draw(t, "x")
			h.push(x)
			model = append(model, x)
			slices.Sort(model)
		}
	})
}
