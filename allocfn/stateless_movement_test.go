package allocfn_test

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
)

// topicsOf returns so many partitions in topics of the given size, the last one smaller if need be.
func topicsOf(partitions, size int) []kiel.Partition {
	var ps []kiel.Partition
	for k := 0; len(ps) < partitions; k++ {
		ps = append(ps, topicOf(fmt.Sprintf("topic%d", k), min(size, partitions-len(ps)))...)
	}
	return ps
}

// TestStatelessMovement holds functions to how much moves, over the lower bound, in the mean over some sets of names when one
// joins and when one leaves. The bounds are about 10 % above what was measured when the functions were new.
func TestStatelessMovement(t *testing.T) {
	for _, tt := range []struct {
		f                    allocfn.Func
		members, size, seeds int
		partitions           int
		join, leave          float64
		weights              int // the largest; 0 is 1
	}{
		{allocfn.CoPartitioned(), 10, 1000, 20, 1000, 1.35, 1.35, 0},
		{allocfn.CoPartitioned(), 100, 10_000, 2, 10_000, 2.1, 2.1, 0},
		{allocfn.TopicBalanced(), 10, 1000, 20, 1000, 1.35, 1.35, 0},
		{allocfn.TopicBalanced(), 10, 100, 20, 1000, 1.75, 1.75, 0},
		{allocfn.TopicBalanced(), 10, 100, 20, 1005, 1.75, 1.75, 0},
		{allocfn.TopicBalanced(), 10, 40, 20, 1000, 1.8, 2.2, 0},
		{allocfn.TopicBalanced(), 10, 37, 20, 1000, 2, 1.9, 0},
		{allocfn.TopicBalanced(), 10, 7, 20, 1000, 1.65, 1.65, 0},
		{allocfn.TopicBalanced(), 100, 100, 2, 10_000, 3.3, 5.4, 0},
		{allocfn.TopicBalanced(), 100, 37, 2, 10_000, 3, 3, 0},
		{allocfn.TopicBalanced(), 10, 1000, 20, 1000, 1.35, 1.35, 100},
		{allocfn.TopicBalanced(), 10, 40, 20, 1000, 2, 1.9, 4},
		{allocfn.TopicBalanced(), 10, 40, 20, 1000, 2, 1.95, 100},
		{allocfn.TopicBalanced(), 10, 7, 20, 1000, 2.3, 2.2, 100},
	} {
		t.Run(fmt.Sprintf("%s/%dx%d/%d/%d", tt.f.Name, tt.members, tt.partitions, tt.size, tt.weights), func(t *testing.T) {
			ps := topicsOf(tt.partitions, tt.size)
			var moved, bound [2]int
			var worst [2]float64
			for seed := range tt.seeds {
				names := randomNames(rand.New(rand.NewPCG(uint64(seed), 7)), tt.members+1)
				group := func(names []string) allocfn.Input {
					return randomWeights(uint64(seed), max(1, tt.weights), groupOf(names, ps...))
				}
				before := group(names[:tt.members])
				for i, after := range []allocfn.Input{group(names), group(names[1:tt.members])} {
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

// randomWeights gives members weights from 1 to most, each always the same.
func randomWeights(seed uint64, most int, in allocfn.Input) allocfn.Input {
	for i := range in.Members {
		m := &in.Members[i]
		h := fnv.New64a()
		h.Write([]byte(m.Name))
		m.Weight = 1 + rand.New(rand.NewPCG(seed, h.Sum64())).IntN(most)
	}
	return in
}

// TestStatelessBound holds functions to what a join or leave moves at most, over many sets of names and sizes around those that
// members divide without a rest, before or after: the lower bound and c times the root of the partitions times the topics.
func TestStatelessBound(t *testing.T) {
	for _, tt := range []struct {
		f       allocfn.Func
		members int  // 0 for 2 to 31
		weights int  // the largest
		oneOnly bool // one topic
		seeds   int
		c       float64
	}{
		{allocfn.CoPartitioned(), 10, 1, true, 1050, 1.5},
		{allocfn.CoPartitioned(), 0, 1, true, 1200, 2.5},
		{allocfn.TopicBalanced(), 10, 1, false, 1050, 1.5},
		{allocfn.TopicBalanced(), 0, 1, false, 1200, 2.5},
		{allocfn.TopicBalanced(), 0, 4, false, 1200, 2.5},
		{allocfn.TopicBalanced(), 0, 100, false, 1200, 2.5},
	} {
		t.Run(fmt.Sprintf("%s/%d/%d", tt.f.Name, tt.members, tt.weights), func(t *testing.T) {
			worst, evenJoins, evenLeaves := 0.0, 0, 0
			for seed := range tt.seeds {
				r := rand.New(rand.NewPCG(uint64(seed), 99))
				members, partitions := tt.members, 90+seed%21
				if members == 0 {
					members = 2 + r.IntN(30)
					each := r.IntN(1 + r.IntN(20))
					if seed%10 == 0 {
						each = r.IntN(100)
					}
					partitions = max(1, (members+seed%3-1)*each+r.IntN(3)-1)
				}
				size := []int{1 + r.IntN(partitions), max(1, members+r.IntN(3)-1), partitions}[seed/3%3]
				if tt.oneOnly {
					size = partitions
				}
				topics := (partitions + size - 1) / size
				names := randomNames(r, members+1)
				ps := topicsOf(partitions, size)
				group := func(names []string) allocfn.Input {
					return randomWeights(uint64(seed), tt.weights, groupOf(names, ps...))
				}
				if partitions%members == 0 || partitions%(members+1) == 0 {
					evenJoins++
				}
				if partitions%members == 0 || partitions%(members-1) == 0 {
					evenLeaves++
				}
				before := group(names[:members])
				for _, after := range []allocfn.Input{group(names), group(names[1:members])} {
					m := mustMeasure(t, tt.f, before, after)
					c := float64(m.Total.Moved-m.LowerBound) / math.Sqrt(float64(partitions*topics))
					worst = max(worst, c)
					if c > tt.c {
						t.Fatalf("%d partitions in %d topics, seed %d: %v", partitions, topics, seed, m)
					}
				}
			}
			t.Attr("worst", fmt.Sprintf("%.2f", worst))
			t.Attr("without_rest", fmt.Sprintf("%d joins, %d leaves", evenJoins, evenLeaves))
			if evenJoins < 200 || evenLeaves < 200 {
				t.Errorf("only %d joins and %d leaves cross a size without a rest", evenJoins, evenLeaves)
			}
		})
	}
}
