package allocfn

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

func TestTopicBalancedIsBrute(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in, names := drawMembers(t, 20)
		n := len(names)
		var topics []int
		for k, size := range rapid.SliceOfN(rapid.IntRange(1, 25), 1, 5).Draw(t, "sizes") {
			for id := range size {
				in.Partitions = append(in.Partitions, Partition{Topic: string(rune('a' + k)), ID: int32(id)})
				topics = append(topics, k)
			}
		}
		zone := rapid.SampledFrom([]string{"", "x", "y", "z"})
		if rapid.Bool().Draw(t, "zones") {
			in.Zones = make(map[Partition]string)
			for m := range in.Members {
				in.Members[m].Zone = zone.Draw(t, "member's")
			}
			for _, p := range in.Partitions {
				in.Zones[p] = zone.Draw(t, "partition's")
			}
		}
		g := newMatching(hashPartitions(in.Partitions))
		g.admit(memberRing(names), n, len(g.keys)/n, len(g.keys)%n)
		g.prefer(newZones(in, pointsOf(names)))
		g.topics = newTopicRoom(in, g.owner)
		want := bruteMatch(g.keys, names, topics, func(u, m int) bool {
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
		g.swapIn(stuck, memberRing(names))
		moved := 0
		for u, m := range want {
			if m >= 0 && g.owner[u] != m {
				moved++
			}
		}
		if moved > len(stuck) {
			t.Fatalf("%d moved for %d that were stuck", moved, len(stuck))
		}
		checkEven(t, in, g)
	})
}

// checkEven checks the bounds, and that g has kept count.
func checkEven(t interface{ Fatalf(string, ...any) }, in Input, g *matching) {
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
	for k, state := range g.topics.topics {
		topic := in.Partitions[g.topics.order[state.from]].Topic
		for m, count := range topics[topic] {
			if got := g.topics.count(int32(k), int32(m)); int(got) != count || state.pool != 0 || g.left[m] != 0 {
				t.Fatalf("%d of topic %s at member %d, counted %d, room for %d and %d", count, topic, m, got, state.pool, g.left[m])
			}
		}
	}
	topics["total"] = total
	for topic, loads := range topics {
		if slices.Max(loads)-slices.Min(loads) > 1 {
			t.Fatalf("%s: %v", topic, loads)
		}
	}
}

// TestTopicBalancedNeverSticks tries every small shape with several names, and
// larger ones that leave many partitions over.
func TestTopicBalancedNeverSticks(t *testing.T) {
	shapes, stuck := 0, 0
	try := func(n int, sizes []int, seed uint64) {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		in := Input{}
		names := make([]uint64, n)
		for m := range names {
			in.Members = append(in.Members, Member{Name: strconv.Itoa(m)})
			names[m] = r.Uint64()
		}
		for k, size := range sizes {
			for id := range size {
				in.Partitions = append(in.Partitions, Partition{Topic: fmt.Sprintf("t%d", k), ID: int32(id)})
			}
		}
		g := newMatching(make([]uint64, len(in.Partitions)))
		for u := range g.keys {
			g.keys[u] = r.Uint64()
		}
		all := memberRing(names)
		g.admit(all, n, len(g.keys)/n, len(g.keys)%n)
		g.topics = newTopicRoom(in, g.owner)
		left := g.match()
		shapes++
		stuck += len(left)
		g.swapIn(left, all)
		checkEven(t, in, g)
	}
	var sizes []int
	var all func(most int)
	all = func(most int) {
		for n := 1; n <= 5 && len(sizes) > 0; n++ {
			for seed := range uint64(2) {
				try(n, sizes, seed)
			}
		}
		for size := 1; size <= most && len(sizes) < 4; size++ {
			sizes = append(sizes, size)
			all(size)
			sizes = sizes[:len(sizes)-1]
		}
	}
	all(7)
	for seed := range uint64(10) {
		for _, n := range []int{3, 10, 65, 130} {
			try(n, slices.Repeat([]int{n - 1}, 12), seed)
			try(n, slices.Repeat([]int{n/2 + 1}, 2*n/3), seed)
			try(n, slices.Repeat([]int{2*n - 1, 1}, 3), seed)
			try(n, append(slices.Repeat([]int{2}, n), slices.Repeat([]int{n/8 + 9}, 9)...), seed)
		}
	}
	t.Attr("shapes", strconv.Itoa(shapes))
	t.Attr("stuck", strconv.Itoa(stuck))
	if stuck < 500 {
		t.Errorf("only %d partitions were stuck: the swaps have not been tried", stuck)
	}
}
