package allocfn

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kielgo/kiel"
)

// balanceOf returns what a call of Balanced begins with.
func balanceOf(in Input) *balance {
	return newBalance(in, newQuotas(in.Members, totalOf(in.Members), len(in.Partitions)))
}

// TestCutDoesNotMatter tries every cut: those that the sure part is meant for, and those that make it take all back.
func TestCutDoesNotMatter(t *testing.T) {
	kept, taken := 0, 0
	for _, shape := range [][2]int{{1, 100}, {3, 300}, {3, 301}, {7, 400}, {40, 399}, {40, 20}, {-3, 300}, {-7, 400}} {
		in := Input{}
		for i := range max(shape[0], -shape[0]) {
			m := Member{Name: fmt.Sprintf("m%03d", i)}
			if shape[0] < 0 {
				m.Weight = 1 + i%3
			}
			in.Members = append(in.Members, m)
		}
		for i := range shape[1] {
			in.Partitions = append(in.Partitions, kiel.Partition{Topic: "t", ID: int32(i)})
		}
		var want Assignment
		for cut := 0; cut < codes; cut += 3 {
			b := balanceOf(in)
			b.choose()
			if _, _, ok := b.sure(cut); ok {
				kept++
			} else {
				taken++
			}
			b = balanceOf(in)
			b.choose()
			b.serveAll(cut)
			if cut == 0 {
				want = b.owner
			}
			if !slices.Equal(b.owner, want) {
				t.Fatalf("%d × %d: cut %d changes the result", shape[0], shape[1], cut)
			}
		}
	}
	if kept < 50 || taken < 50 {
		t.Errorf("kept %d sure parts, took %d back", kept, taken)
	}
	t.Attr("sure_parts_kept", fmt.Sprint(kept))
}
