package allocfn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/kielgo/kiel"
)

func TestTopicBalancedIsBrute(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in, names := drawMembers(t, 20)
		var topics []int
		for k, size := range rapid.SliceOfN(rapid.IntRange(1, 25), 1, 5).Draw(t, "sizes") {
			for id := range size {
				in.Partitions = append(in.Partitions, kiel.Partition{Topic: string(rune('a' + k)), ID: int32(id)})
				topics = append(topics, k)
			}
		}
		zone := rapid.SampledFrom([]string{"", "x", "y", "z"})
		if rapid.Bool().Draw(t, "zones") {
			in.Zones = make(map[kiel.Partition]string)
			for m := range in.Members {
				in.Members[m].Zone = zone.Draw(t, "member's")
			}
			for _, p := range in.Partitions {
				in.Zones[p] = zone.Draw(t, "partition's")
			}
		}
		weight := rapid.OneOf(rapid.IntRange(1, 4), rapid.IntRange(1, 200), rapid.IntRange(1, math.MaxInt32))
		weights := make([]uint64, len(names))
		differ := rapid.Bool().Draw(t, "weights differ")
		for m := range names {
			if differ {
				in.Members[m].Weight = weight.Draw(t, "weight")
			}
			weights[m] = shareOf(in.Members[m].Weight)
		}
		g := newTopicMatching(in, hashPartitions(in.Partitions), pointsOf(names), allotmentByWeight(in))
		all := slices.Clone(g.fields[nowhere])
		want := bruteMatch(g.keys, names, weights, topics, func(u, m int) bool {
			zone := in.Zones[in.Partitions[u]]
			return zone != "" && zone == in.Members[m].Zone
		})
		stuck := g.match()
		if !slices.Equal(g.owner, want) {
			t.Fatalf("got %v, want %v", g.owner, want)
		}
		for u, m := range g.owner {
			if (m < 0) != slices.Contains(stuck, int32(u)) {
				t.Fatalf("got %v and stuck %v", g.owner, stuck)
			}
		}
		// Swaps touch nothing they need not.
		held := g.held()
		rest := g.swapIn(stuck, held, all)
		if len(rest) > 0 && g.scale.inverse == nil {
			t.Fatalf("%v have no swap", rest)
		}
		moved := 0
		for u, m := range want {
			if m >= 0 && g.owner[u] != m {
				moved++
			}
		}
		if moved > len(stuck)-len(rest) {
			t.Fatalf("%d moved for %d that were stuck", moved, len(stuck))
		}
		c := newChains(allotmentByWeight(in), g, held)
		c.link(rest)
		checkEven(t, in, g, c.free)
	})
}

// checkEven checks the bounds, that the totals are those of Balanced unless they are free, and that g has kept count of topics.
func checkEven(t interface{ Fatalf(string, ...any) }, in Input, g *matching, free bool) {
	weights := make([]uint64, len(in.Members))
	for m := range weights {
		weights[m] = shareOf(in.Members[m].Weight)
	}
	total := make([]int, len(in.Members))
	topics := make(map[string][]int)
	for u, m := range g.owner {
		topic := in.Partitions[u].Topic
		if topics[topic] == nil {
			topics[topic] = make([]int, len(in.Members))
		}
		if m < 0 {
			t.Fatalf("%v is forgotten", in.Partitions[u])
		}
		total[m]++
		topics[topic][m]++
	}
	check := func(what string, counts []int, r *bruteRoom) {
		for m, count := range counts {
			if count < r.base[m] || count > r.base[m] && (count > r.base[m]+1 || !r.more[m]) {
				t.Fatalf("%s: %v, want %v and one more for %v", what, counts, r.base, r.more)
			}
		}
	}
	check("total", total, bruteShares(weights, len(g.owner), !free))
	for k, state := range g.topics.topics {
		topic := in.Partitions[g.topics.order[state.from]].Topic
		check(topic, topics[topic], bruteShares(weights, int(state.to-state.from), false))
		for m, count := range topics[topic] {
			if got := g.topics.count(int32(k), int32(m)); int(got) != count || state.pool != 0 {
				t.Fatalf("%d of topic %s at member %d, counted %d, room for %d", count, topic, m, got, state.pool)
			}
		}
	}
}

// tried is what became of one group in the tests below.
type tried struct {
	stuck, rest int
	free        bool
	total       []int32
}

// try makes an assignment for members of such weights and topics of such sizes, with names from a seed, and checks it.
func try(t *testing.T, r *rand.Rand, weights, sizes []int) tried {
	t.Helper()
	in := Input{}
	names := make([]uint64, len(weights))
	for m, w := range weights {
		in.Members = append(in.Members, Member{Name: strconv.Itoa(m), Weight: w})
		names[m] = r.Uint64()
	}
	for k, size := range sizes {
		for id := range size {
			in.Partitions = append(in.Partitions, kiel.Partition{Topic: fmt.Sprintf("t%d", k), ID: int32(id)})
		}
	}
	keys := make([]uint64, len(in.Partitions))
	for u := range keys {
		keys[u] = r.Uint64()
	}
	g := newTopicMatching(in, keys, pointsOf(names), allotmentByWeight(in))
	all := slices.Clone(g.fields[nowhere])
	stuck := g.match()
	held := g.held()
	rest := g.swapIn(stuck, held, all)
	if len(rest) > 0 && g.scale.inverse == nil {
		t.Fatalf("%d have no swap", len(rest))
	}
	c := newChains(allotmentByWeight(in), g, held)
	c.link(rest)
	checkEven(t, in, g, c.free)
	result := tried{len(stuck), len(rest), c.free, make([]int32, len(weights))}
	for _, m := range g.owner {
		result.total[m]++
	}
	return result
}

// TestTopicBalancedNeverSticks tries every small shape with several names, and larger ones that leave many partitions over, with
// equal weights.
func TestTopicBalancedNeverSticks(t *testing.T) {
	shapes, stuck := 0, 0
	attempt := func(n int, sizes []int, seed uint64) {
		stuck += try(t, rand.New(rand.NewPCG(seed, uint64(n))), make([]int, n), sizes).stuck
		shapes++
	}
	var sizes []int
	var all func(most int)
	all = func(most int) {
		for n := 1; n <= 5 && len(sizes) > 0; n++ {
			for seed := range uint64(2) {
				attempt(n, sizes, seed)
			}
		}
		for size := 1; size <= most && len(sizes) < 4; size++ {
			sizes = append(sizes, size)
			all(size)
			sizes = sizes[:len(sizes)-1]
		}
	}
	all(7)
	for seed := range uint64(30) {
		for _, n := range []int{3, 10, 65, 130} {
			attempt(n, slices.Repeat([]int{n - 1}, 12), seed)
			attempt(n, slices.Repeat([]int{n/2 + 1}, 2*n/3), seed)
			attempt(n, slices.Repeat([]int{2*n - 1, 1}, 3), seed)
			attempt(n, append(slices.Repeat([]int{2}, n), slices.Repeat([]int{n/8 + 9}, 9)...), seed)
		}
	}
	t.Attr("shapes", strconv.Itoa(shapes))
	t.Attr("stuck", strconv.Itoa(stuck))
	if stuck < 300 {
		t.Errorf("only %d partitions were stuck: the swaps have not been tried", stuck)
	}
}
