package allocfn

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// bruteMatch is what match does, told the plain way: all pairs, sorted, one by
// one. topics holds each unit's topic, or is nil; near says who is in one zone.
func bruteMatch(keys, names []uint64, topics []int, near func(u, m int) bool) []int32 {
	type pair struct {
		far      int64
		distance int64
		unit     int
		score    int64
		member   int
	}
	var all []pair
	for u, key := range keys {
		for m, name := range names {
			least := int64(math.MaxInt64)
			for _, z := range probe(key) {
				for _, p := range appendPoints(nil, 0, name, 1) {
					const round = 1<<ringBits - 1
					least = min(least, (p>>32-z>>32)&round<<32|int64(m), (z>>32-p>>32)&round<<32|(math.MaxUint32-int64(m)))
				}
			}
			far := int64(1)
			if near(u, m) {
				far = 0
			}
			all = append(all, pair{far, least >> 32, u, least, m})
		}
	}
	slices.SortFunc(all, func(a, b pair) int {
		return slices.Compare([]int64{a.far, a.distance, int64(a.unit), a.score}, []int64{b.far, b.distance, int64(b.unit), b.score})
	})
	// room says who may take one more of some units that are shared by all.
	room := func(units int) func(m, by int) bool {
		has := make([]int, len(names))
		more := units % len(names)
		return func(m, by int) bool {
			if by > 0 && has[m] == units/len(names) {
				more--
			}
			has[m] += by
			return has[m] < units/len(names) || has[m] == units/len(names) && more > 0
		}
	}
	rooms := []func(m, by int) bool{room(len(keys))}
	for t := 0; slices.Contains(topics, t); t++ {
		count := 0
		for _, topic := range topics {
			if topic == t {
				count++
			}
		}
		rooms = append(rooms, room(count))
	}
	owner := make([]int32, len(keys))
	for u := range owner {
		owner[u] = -1
	}
	for _, p := range all {
		ofTopic := func(int, int) bool { return true }
		if topics != nil {
			ofTopic = rooms[1+topics[p.unit]]
		}
		if owner[p.unit] < 0 && rooms[0](p.member, 0) && ofTopic(p.member, 0) {
			owner[p.unit] = int32(p.member)
			rooms[0](p.member, 1)
			ofTopic(p.member, 1)
		}
	}
	return owner
}

func drawMembers(t *rapid.T, most int) (in Input, names []uint64) {
	for m := range rapid.IntRange(1, most).Draw(t, "members") {
		name := rapid.StringMatching(`[a-z]{8}`).Draw(t, "name")
		in.Members = append(in.Members, Member{Name: name})
		names = append(names, hashName(name)) // often some are equal
		if m > 0 && rapid.IntRange(0, 5).Draw(t, "alike") == 0 {
			names[m] = names[m-1]
		}
	}
	return in, names
}

func TestMatchIsBrute(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in, names := drawMembers(t, 30)
		n := len(names)
		for i := range rapid.IntRange(1, 60).Draw(t, "partitions") {
			in.Partitions = append(in.Partitions, Partition{Topic: "t", ID: int32(i)})
		}
		g := newMatching(hashPartitions(in.Partitions))
		g.admit(memberRing(names), n, len(g.keys)/n, len(g.keys)%n)
		want := bruteMatch(g.keys, names, nil, func(int, int) bool { return false })
		if stuck := g.match(); !slices.Equal(g.owner, want) || len(stuck) > 0 {
			t.Fatalf("got %v and stuck %v, want %v", g.owner, stuck, want)
		}
	})
}
