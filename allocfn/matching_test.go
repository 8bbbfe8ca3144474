package allocfn

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// bruteMatch is what match does, told the plain way: all pairs, sorted, one by
// one. It begins with the room that g has.
func bruteMatch(g *matching, points []int64) []int32 {
	type pair struct {
		distance int64
		unit     int32
		score    int64
		member   int32
	}
	var all []pair
	for u := range int32(len(g.keys)) {
		for m := range g.left {
			least := int64(math.MaxInt64)
			for _, z := range probe(g.keys[u]) {
				for _, p := range points {
					if int32(p) == int32(m) {
						least = min(least, (p>>32-z>>32)&(1<<ringBits-1)<<32|int64(m), (z>>32-p>>32)&(1<<ringBits-1)<<32|(math.MaxUint32-int64(m)))
					}
				}
			}
			all = append(all, pair{least >> 32, u, least, int32(m)})
		}
	}
	slices.SortFunc(all, func(a, b pair) int {
		return slices.Compare([]int64{a.distance, int64(a.unit), a.score}, []int64{b.distance, int64(b.unit), b.score})
	})
	owner := slices.Clone(g.owner)
	left, pool := slices.Clone(g.left), g.pool
	extra := pool > 0 // left counts one of the pool
	for _, p := range all {
		room := left[p.member]
		if extra && pool == 0 {
			room--
		}
		if owner[p.unit] >= 0 || room <= 0 {
			continue
		}
		owner[p.unit] = p.member
		left[p.member]--
		if extra && left[p.member] == 0 {
			pool--
		}
	}
	return owner
}

func TestMatchIsBrute(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		n, count := rapid.IntRange(1, 30).Draw(t, "members"), rapid.IntRange(1, 60).Draw(t, "units")
		keys := make([]uint64, count)
		for u := range keys {
			keys[u] = fmix(seed + uint64(u)*phi)
		}
		names := make([]uint64, n)
		var points []int64
		for m := range names {
			names[m] = fmix(^seed + uint64(m)*phi)
			if m > 0 && rapid.IntRange(0, 5).Draw(t, "alike") == 0 {
				names[m] = names[m-1] // points at the same places
			}
			points = appendPoints(points, m, names[m], 1)
		}
		g := newMatching(keys)
		g.admit(memberRing(names), n, count/n, count%n)
		want := bruteMatch(g, points)
		g.match()
		if !slices.Equal(g.owner, want) {
			t.Fatalf("got %v, want %v", g.owner, want)
		}
	})
}
