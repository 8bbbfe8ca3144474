package allocfn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// TestBalancedWeightSteps changes the weight of one member in small steps, from much less than the others have to much more: no
// step moves many partitions more than it must, wherever it is.
func TestBalancedWeightSteps(t *testing.T) {
	const most, mean = 1.0, 0.15 // in roots of the number of partitions
	for name, others := range map[string]func(r *rand.Rand) int{
		"equal":     func(*rand.Rand) int { return 100 },
		"different": func(r *rand.Rand) int { return 1 + r.IntN(200) },
		"small":     func(r *rand.Rand) int { return 1 + r.IntN(5) },
		"two kinds": func(r *rand.Rand) int { return 64 + 64*r.IntN(2) },
	} {
		for _, factor := range []int{1, 10} { // percent and millicores
			t.Run(fmt.Sprintf("%s, times %d", name, factor), func(t *testing.T) {
				worst, sum, n := 0.0, 0.0, 0
				for seed := range uint64(3) {
					in := randomGroup(seed, 10, 1_000)
					r := rand.New(rand.NewPCG(seed, 12))
					for m := range in.Members {
						in.Members[m].Weight = factor * others(r)
					}
					plan := func(weight int) allocfn.Plan {
						in := copied(in)
						in.Members[3].Weight = weight * factor
						return allocfn.Plan{Input: in, Assignment: assign(t, in)}
					}
					before := plan(1)
					for weight := 2; weight <= 200; weight++ {
						after := plan(weight)
						m, err := allocfn.Measure(before, after)
						noerr.Must(t, err)
						excess := float64(m.Total.Moved-m.LowerBound) / math.Sqrt(1_000)
						worst, sum, n = max(worst, excess), sum+excess, n+1
						if excess > most {
							t.Errorf("seed %d, weight %d: moved %d, least %d", seed, weight, m.Total.Moved, m.LowerBound)
						}
						before = after
					}
				}
				t.Attr("excess_in_roots", fmt.Sprintf("mean %.3f, worst %.2f", sum/float64(n), worst))
				if sum/float64(n) > mean {
					t.Errorf("moved %.3f roots more than the least in the mean, want %.2f", sum/float64(n), mean)
				}
			})
		}
	}
}

// TestBalancedWeightUnit gives all weights in another unit, which moves nothing, for only their proportions count.
func TestBalancedWeightUnit(t *testing.T) {
	for seed := range uint64(20) {
		in := randomGroup(seed, 10, 1_000)
		r := rand.New(rand.NewPCG(seed, 13))
		for m := range in.Members {
			in.Members[m].Weight = 1 + r.IntN(200)
		}
		a := assign(t, in)
		for _, factor := range []int{2, 10, 64, 1_000, 1_000_000} {
			other := copied(in)
			for m := range other.Members {
				other.Members[m].Weight *= factor
			}
			if b := assign(t, other); !slices.Equal(a, b) {
				t.Errorf("seed %d, times %d: another plan", seed, factor)
			}
		}
	}
}

// TestBalancedWeightUnitRounding is a group in which weights in another unit, rounded in that, moved 8 partitions.
func TestBalancedWeightUnitRounding(t *testing.T) {
	r := rand.New(rand.NewPCG(4334, 9))
	members, topics, size := 2+r.IntN(100), 1+r.IntN(10), 1+r.IntN(1000)
	r.IntN(5)
	var in, other allocfn.Input
	for topic := range topics {
		for id := range size {
			in.Partitions = append(in.Partitions, kiel.Partition{Topic: fmt.Sprintf("t%05d", topic), ID: int32(id)})
		}
	}
	kiel.SortPartitions(in.Partitions)
	other.Partitions = in.Partitions
	for m := range members {
		member := allocfn.Member{Name: fmt.Sprintf("m%05d", m), Weight: 1 + r.IntN(100)}
		in.Members = append(in.Members, member)
		member.Weight *= 10
		other.Members = append(other.Members, member)
	}
	if a, b := assign(t, in), assign(t, other); !slices.Equal(a, b) {
		t.Error("ten times the weights give another plan")
	}
}

func copied(in allocfn.Input) allocfn.Input {
	in.Members = slices.Clone(in.Members)
	return in
}
