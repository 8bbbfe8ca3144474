package allocfn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// TestBalancedMovesLittleByWeights holds every join and leave of a group with weights up to 10,000 to the lower bound and some
// roots of the number of partitions.
func TestBalancedMovesLittleByWeights(t *testing.T) {
	worst, sum, n := 0.0, 0.0, 0
	for seed := range uint64(1_200) {
		r := rand.New(rand.NewPCG(seed, 5))
		members := 2 + r.IntN(30)
		largest := []int{2, 64, 10_000}[seed%3]
		partitions := 1 + r.IntN(100*members)
		more := randomGroup(seed, members+1, partitions)
		for i := range more.Members {
			more.Members[i].Weight = 1 + r.IntN(largest)
		}
		in := without(more, r.IntN(members+1))
		fewer := without(in, r.IntN(members))
		before := allocfn.Plan{Input: in, Assignment: assign(t, in)}
		for _, other := range []allocfn.Input{more, fewer} {
			m, err := allocfn.Measure(before, allocfn.Plan{Input: other, Assignment: assign(t, other)})
			noerr.Must(t, err)
			if !m.Total.After.Even || m.Total.Moved < m.LowerBound {
				t.Fatalf("seed %d: %v", seed, m)
			}
			excess := float64(m.Total.Moved-m.LowerBound) / math.Sqrt(float64(partitions))
			worst, sum, n = max(worst, excess), sum+excess, n+1
			if excess > movementFactor {
				t.Errorf("seed %d: %d × %d, weights up to %d: moved %d, lower bound %d",
					seed, len(in.Members), partitions, largest, m.Total.Moved, m.LowerBound)
			}
		}
	}
	t.Attr("excess_mean_in_roots", fmt.Sprintf("%.2f", sum/float64(n)))
	t.Attr("excess_worst_in_roots", fmt.Sprintf("%.2f", worst))
}
