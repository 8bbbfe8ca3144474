package allocfn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kielgo/kiel/allocfn"
)

// topicsOf returns so many partitions in topics of the given size, the last one
// smaller if need be.
func topicsOf(partitions, size int) []allocfn.Partition {
	var ps []allocfn.Partition
	for k := 0; len(ps) < partitions; k++ {
		ps = append(ps, topicOf(fmt.Sprintf("topic%d", k), min(size, partitions-len(ps)))...)
	}
	return ps
}

// TestStatelessMovement holds functions to how much moves, over the lower bound,
// in the mean over some sets of names when one joins and when one leaves. The
// bounds are about 10 % above what was measured when the functions were new.
func TestStatelessMovement(t *testing.T) {
	for _, tt := range []struct {
		f                    allocfn.Func
		members, size, seeds int
		partitions           int
		join, leave          float64
	}{
		{allocfn.CoPartitioned(), 10, 1000, 20, 1000, 1.35, 1.35},
		{allocfn.CoPartitioned(), 100, 10_000, 2, 10_000, 2.1, 2.1},
		{allocfn.TopicBalanced(), 10, 1000, 20, 1000, 1.35, 1.35},
		{allocfn.TopicBalanced(), 10, 100, 20, 1000, 1.75, 1.75},
		{allocfn.TopicBalanced(), 10, 100, 20, 1005, 1.75, 1.75},
		{allocfn.TopicBalanced(), 10, 40, 20, 1000, 1.85, 2.3},
		{allocfn.TopicBalanced(), 10, 37, 20, 1000, 2.1, 2},
		{allocfn.TopicBalanced(), 10, 7, 20, 1000, 1.65, 1.65},
		{allocfn.TopicBalanced(), 100, 100, 2, 10_000, 3.3, 5.7},
		{allocfn.TopicBalanced(), 100, 37, 2, 10_000, 3, 3},
	} {
		t.Run(fmt.Sprintf("%s/%dx%d/%d", tt.f.Name, tt.members, tt.partitions, tt.size), func(t *testing.T) {
			ps := topicsOf(tt.partitions, tt.size)
			var moved, bound [2]int
			var worst [2]float64
			for seed := range tt.seeds {
				names := randomNames(rand.New(rand.NewPCG(uint64(seed), 7)), tt.members+1)
				before := groupOf(names[:tt.members], ps...)
				for i, after := range []allocfn.Input{groupOf(names, ps...), groupOf(names[1:tt.members], ps...)} {
					m := mustMeasure(t, tt.f, before, after)
					moved[i] += m.Total.Moved
					bound[i] += m.LowerBound
					worst[i] = max(worst[i], float64(m.Total.Moved)/float64(m.LowerBound))
				}
			}
			join, leave := float64(moved[0])/float64(bound[0]), float64(moved[1])/float64(bound[1])
			t.Attr("join", fmt.Sprintf("%.2f, worst %.2f", join, worst[0]))
			t.Attr("leave", fmt.Sprintf("%.2f, worst %.2f", leave, worst[1]))
			if join > tt.join || leave > tt.leave {
				t.Errorf("moved %.2f times the lower bound on a join, %.2f on a leave, want at most %.2f and %.2f", join, leave, tt.join, tt.leave)
			}
		})
	}
}

// TestStatelessBound holds functions to what a join or leave moves at most, over
// many sets of names and sizes around those that members divide without a rest:
// the lower bound and 1.5 times the root of the partitions times the topics.
func TestStatelessBound(t *testing.T) {
	for _, tt := range []struct {
		f    allocfn.Func
		size int // of topics
	}{{allocfn.CoPartitioned(), 1000}, {allocfn.TopicBalanced(), 25}} {
		t.Run(tt.f.Name, func(t *testing.T) {
			worst := 0.0
			for seed := range 1050 {
				names := randomNames(rand.New(rand.NewPCG(uint64(seed), 99)), 11)
				ps := topicsOf(90+seed%21, tt.size)
				topics := (len(ps) + tt.size - 1) / tt.size
				before := groupOf(names[:10], ps...)
				for _, after := range []allocfn.Input{groupOf(names, ps...), groupOf(names[1:10], ps...)} {
					m := mustMeasure(t, tt.f, before, after)
					c := float64(m.Total.Moved-m.LowerBound) / math.Sqrt(float64(len(ps)*topics))
					worst = max(worst, c)
					if c > 1.5 {
						t.Fatalf("%d partitions in %d topics, seed %d: %v", len(ps), topics, seed, m)
					}
				}
			}
			t.Attr("worst", fmt.Sprintf("%.2f", worst))
		})
	}
}
