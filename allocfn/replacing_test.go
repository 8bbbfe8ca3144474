package allocfn_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kielgo/kiel/allocfn"
)

// TestReplacingMembers replaces 20 members one by one and adds up what moves, in multiples of all partitions. What
// docs/choosing-a-function.md says of it begins here.
func TestReplacingMembers(t *testing.T) {
	const members, partitions, seeds = 20, 2_000, 4
	ways := []struct {
		name   string
		stable bool // names stay
		once   bool // the new one joins in the change in which the old one leaves
		first  bool // the new one joins before the old one leaves
	}{
		{name: "stable names", stable: true},
		{name: "stable names, in one change", stable: true, once: true},
		{name: "random names"},
		{name: "random names, joining first", first: true},
		{name: "random names, in one change", once: true},
	}
	for _, f := range []allocfn.Func{allocfn.Balanced(), allocfn.TopicBalanced()} {
		most := map[string]float64{"balanced": 3, "topicbalanced": 5.8}[f.Name] // times all partitions
		for _, w := range ways {
			t.Run(f.Name+", "+w.name, func(t *testing.T) {
				moved, least := 0, 0
				for seed := range uint64(seeds) {
					r := rand.New(rand.NewPCG(seed, 15))
					names := randomNames(r, members)
					ps := topicsOf(partitions, 100)
					now := groupOf(names, ps...)
					step := func(names []string) {
						next := groupOf(names, ps...)
						m := mustMeasure(t, f, now, next)
						moved, least, now = moved+m.Total.Moved, least+m.LowerBound, next
					}
					for k, old := range names {
						newcomer := randomNames(r, 1)[0]
						if w.stable {
							newcomer = old
						}
						if w.first {
							step(append(slices.Clone(names), newcomer))
						} else if !w.once {
							step(slices.Delete(slices.Clone(names), k, k+1))
						}
						names = slices.Clone(names)
						names[k] = newcomer
						step(names)
					}
				}
				all := float64(seeds * partitions)
				t.Attr("moved", fmt.Sprintf("%.2f times all partitions, least %.2f", float64(moved)/all, float64(least)/all))
				if float64(moved)/all > most {
					t.Errorf("moved %.2f times all partitions, want %.2f", float64(moved)/all, most)
				}
			})
		}
	}
}

// TestUnevenTopics measures how uneven topics are where only the sum is even: the largest difference between two members within
// one topic, of 10 members and 1,000 partitions.
func TestUnevenTopics(t *testing.T) {
	for _, size := range []int{1_000, 500, 200, 100, 40, 10} {
		worst, most := 0, 0
		for seed := range uint64(50) {
			r := rand.New(rand.NewPCG(seed, 16))
			in := groupOf(randomNames(r, 10), topicsOf(1_000, size)...)
			for _, f := range []allocfn.Func{allocfn.Balanced(), allocfn.TopicBalanced()} {
				m := mustMeasure(t, f, in, in)
				for _, topic := range m.Topics {
					if difference := topic.After.Most - topic.After.Least; f.Name == "balanced" {
						worst = max(worst, difference)
					} else {
						most = max(most, difference)
					}
				}
			}
		}
		t.Attr(fmt.Sprintf("topics_of_%d", size), fmt.Sprintf("balanced %d, topicbalanced %d", worst, most))
		if most > 1 || worst > 30 {
			t.Errorf("topics of %d: balanced differs by %d, topicbalanced by %d", size, worst, most)
		}
	}
}

// TestCoPartitionedOfOne gives all topics of one partition to one member, as they are of one class.
func TestCoPartitionedOfOne(t *testing.T) {
	in := groupOf(numberedNames("m", 10), topicsOf(500, 1)...)
	a := mustCall(t, allocfn.CoPartitioned(), in)
	if len(a) != 500 || slices.ContainsFunc(a, func(m int32) bool { return m != a[0] }) {
		t.Errorf("topics of one partition are at several members: %v", a)
	}
}
