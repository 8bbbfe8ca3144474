package allocfn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kielgo/kiel/allocfn"
)

// TestEvaluatorIsBalanced takes evaluators through random histories of groups.
func TestEvaluatorIsBalanced(t *testing.T) {
	steps := 0
	for seed := range uint64(25) {
		r := rand.New(rand.NewPCG(seed, 6))
		pool := randomGroup(seed, 200, 1+r.IntN(4000))
		in := pool
		in.Members = slices.Clone(pool.Members[:60+r.IntN(100)])
		var e allocfn.Evaluator
		for step := range 25 {
			in.Members = slices.Clone(in.Members)
			switch r.IntN(12) {
			case 0: // another set
				in.Partitions = slices.Clone(pool.Partitions[:1+r.IntN(len(pool.Partitions))])
			case 1: // the same set, read anew
				in.Partitions = slices.Clone(in.Partitions)
			case 2: // another weight
				in.Members[r.IntN(len(in.Members))].Weight = []int{0, 1, 2, 3, math.MaxInt32}[r.IntN(5)]
			case 3: // zones
				in.Zones = nil
				if r.IntN(2) == 0 {
					in = weigh(uint64(step), in)
				}
			case 4: // many go
				in.Members = in.Members[:1+r.IntN(len(in.Members))]
			}
			for range r.IntN(3) {
				m := pool.Members[r.IntN(len(pool.Members))]
				i, found := slices.BinarySearchFunc(in.Members, m.Name, func(m allocfn.Member, name string) int {
					return strings.Compare(m.Name, name)
				})
				if !found {
					in.Members = slices.Insert(in.Members, i, m)
				} else if len(in.Members) > 1 {
					in.Members = slices.Delete(in.Members, i, i+1)
				}
			}
			got, err := e.Assign(in)
			if err != nil {
				t.Fatal(err)
			}
			if want := assign(t, in); !slices.Equal(got, want) {
				t.Fatalf("seed %d, step %d: %d members, %d partitions: differs",
					seed, step, len(in.Members), len(in.Partitions))
			}
			steps++
		}
	}
	t.Attr("steps", fmt.Sprint(steps))
}
