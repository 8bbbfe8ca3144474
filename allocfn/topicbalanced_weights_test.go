package allocfn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// checkEven checks that the numbers of partitions of each member, of each topic and in total, are less than one away from its
// share by weight: Measure counts.
func checkEven(t failer, in allocfn.Input, a allocfn.Assignment) {
	t.Helper()
	m, err := allocfn.Measure(allocfn.Plan{in, a}, allocfn.Plan{in, a})
	noerr.Must(t, err)
	for _, c := range append(m.Topics, m.Total) {
		if !c.After.Even {
			t.Fatalf("%+v for %+v: %v", c, in.Members, a)
		}
	}
}

// TestTopicBalancedKeepsItsWord checks the bounds for any weights and zones, and that neither the order in which names came in,
// nor what was before, matters.
func TestTopicBalancedKeepsItsWord(t *testing.T) {
	f := allocfn.TopicBalanced()
	rapid.Check(t, func(t *rapid.T) {
		in := groupOf(subject{}.drawNames(t), drawTopics(t)...)
		weight := rapid.OneOf(rapid.IntRange(0, 4), rapid.IntRange(0, 200), rapid.IntRange(0, math.MaxInt))
		for i := range in.Members {
			in.Members[i].Weight = weight.Draw(t, "weight")
		}
		if rapid.Bool().Draw(t, "zones") {
			zone := rapid.SampledFrom([]string{"", "x", "y", "z", "nobody's"})
			in.Zones = make(map[kiel.Partition]string)
			for i := range in.Members {
				in.Members[i].Zone = zone.Draw(t, "member's")
			}
			for _, p := range in.Partitions {
				in.Zones[p] = zone.Draw(t, "partition's")
			}
		}
		text := fmt.Sprint(in)
		a := mustCall(t, f, in)
		if after := fmt.Sprint(in); after != text {
			t.Fatalf("the input was changed to %s", after)
		}
		if len(in.Members) == 0 || len(in.Partitions) == 0 {
			return
		}
		checkEven(t, in, a)

		shuffled := in
		shuffled.Partitions = rapid.Permutation(in.Partitions).Draw(t, "partitions")
		shuffled.Members = rapid.Permutation(in.Members).Draw(t, "members")
		kiel.SortPartitions(shuffled.Partitions)
		slices.SortFunc(shuffled.Members, func(a, b allocfn.Member) int { return strings.Compare(a.Name, b.Name) })
		if again := mustCall(t, f, shuffled); !slices.Equal(a, again) {
			t.Fatalf("in another order: %v and %v", a, again)
		}
		// One goes, and comes back under the same name.
		gone := rapid.IntRange(0, len(in.Members)-1).Draw(t, "who goes")
		fewer := without(in, gone)
		if len(fewer.Members) > 0 {
			checkEven(t, fewer, mustCall(t, f, fewer))
		}
		back := fewer
		back.Members = slices.Insert(slices.Clone(fewer.Members), gone, in.Members[gone])
		if again := mustCall(t, f, back); !slices.Equal(a, again) {
			t.Fatalf("gone and back: %v and %v", a, again)
		}
	})
}

// Where all weights are equal, they are as none.
func TestTopicBalancedEqualWeights(t *testing.T) {
	in := groupOf(numberedNames("host", 17), append(topicOf("t", 30), topicOf("u", 100)...)...)
	want := mustCall(t, allocfn.TopicBalanced(), in)
	for _, weight := range []int{1, 2, 3, 64, 100, math.MaxInt32, math.MaxInt} {
		for m := range in.Members {
			in.Members[m].Weight = weight
		}
		if got := mustCall(t, allocfn.TopicBalanced(), in); !slices.Equal(got, want) {
			t.Errorf("weight %d: got %v, want %v", weight, got, want)
		}
	}
	in.Members[3].Weight = 1
	if got := mustCall(t, allocfn.TopicBalanced(), in); slices.Equal(got, want) || slices.Contains(got, 3) {
		t.Errorf("a weight of 1 among others of %d: got %v", math.MaxInt, got)
	}
}

// Where the shares by weight come out even in every zone, all stay in theirs.
func TestTopicBalancedWeightsStayInZone(t *testing.T) {
	in := inZones(groupOf(numberedNames("host", 12), append(topicOf("t", 30), topicOf("u", 60)...)...), 3, 3)
	for m := range in.Members {
		in.Members[m].Weight = 1 + m/3
	}
	a := mustCall(t, allocfn.TopicBalanced(), in)
	checkEven(t, in, a)
	for i, m := range a {
		if p := in.Partitions[i]; in.Members[m].Zone != in.Zones[p] {
			t.Errorf("%v of zone %s is with %v", p, in.Zones[p], in.Members[m])
		}
	}
}

// A new weight moves no more than a join or leave may, wherever it is: there is none at which the others suit partitions in
// another way.
func TestTopicBalancedWeightChange(t *testing.T) {
	worst := 0.0
	ps := topicsOf(1_000, 40)
	for _, change := range [][2]int{{1, 2}, {30, 60}, {64, 65}, {100, 101}, {1_000, 2_000}, {math.MaxInt32 / 2, math.MaxInt32}} {
		for seed := range uint64(20) {
			names := randomNames(rand.New(rand.NewPCG(seed, 8)), 10)
			group := func(weight int) allocfn.Input {
				in := randomWeights(seed, min(change[0], 64), groupOf(names, ps...))
				in.Members[3].Weight = weight
				return in
			}
			m := mustMeasure(t, allocfn.TopicBalanced(), group(change[0]), group(change[1]))
			c := float64(m.Total.Moved-m.LowerBound) / math.Sqrt(1_000*25)
			worst = max(worst, c)
			if c > 1.5 {
				t.Errorf("weight %d to %d, seed %d: %v", change[0], change[1], seed, m)
			}
		}
	}
	t.Attr("worst", fmt.Sprintf("%.2f", worst))
}

// FuzzTopicBalanced feeds it any weights and zones.
func FuzzTopicBalanced(f *testing.F) {
	f.Add([]byte{1, 2, 3}, []byte{5, 9}, 1, false)
	f.Add([]byte{3, 2, 2, 3, 2}, []byte{6, 4}, 1, false)
	f.Add([]byte{200, 1, 1, 1, 0}, []byte{60, 4, 1, 1, 17}, math.MaxInt/256, true)
	f.Fuzz(func(t *testing.T, weights, sizes []byte, factor int, zones bool) {
		in := groupOf(numberedNames("host", min(len(weights), 40)))
		for m := range in.Members {
			in.Members[m].Weight = max(0, int(weights[m])*factor)
		}
		for k, size := range sizes[:min(len(sizes), 30)] {
			in.Partitions = append(in.Partitions, topicOf(fmt.Sprint("t", k), int(size))...)
		}
		kiel.SortPartitions(in.Partitions)
		if zones {
			in = inZones(in, 3, 4)
		}
		if a := mustCall(t, allocfn.TopicBalanced(), in); len(a) > 0 {
			checkEven(t, in, a)
		}
	})
}
