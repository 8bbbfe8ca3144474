package allocfn

import (
	"math/bits"
	"slices"
)

// matching assigns units, which are partitions or groups of them, to members that suit them. It takes the allowed pairs in the
// order of their distances on the ring, those in one zone before all others. Of equal distances it takes that of the first unit,
// and of one unit's the least score. Where members have weights, distances are divided by them, and those of two units are equal
// if they agree in the first 26 bits.
//
// The set of allowed pairs only shrinks. So it is enough to remember each unit's best pair, and to look for the next best when
// that is no longer allowed.
type matching struct {
	keys  []uint64 // the hashes of the units
	owner []int32  // the owners of the units, -1 for none
	room  quotas   // how many units members may take; with topics, beyond those due to them

	fields [][]field // by zone, the first being that of all members, and by class
	scale  scale     // the members' weights
	home   []int32   // the zone of each unit, nowhere when no member there may take it; nil without zones
	place  []int32   // the zone of each member; nil without zones

	topics *topicRoom // if not nil, the further bounds of each topic
}

// newMatching begins a matching in which no unit has an owner.
func newMatching(keys []uint64) *matching {
	g := &matching{keys: keys, owner: make([]int32, len(keys))}
	for u := range g.owner {
		g.owner[u] = -1
	}
	return g
}

// pointsOf returns the points of the members with these hashes.
func pointsOf(names []uint64) []int64 {
	points := make([]int64, 0, pointSize*len(names))
	for m, name := range names {
		points = appendPoints(points, m, name)
	}
	return points
}

// admit lets members take units. points are the members' points, room is how many units each may take, s has their weights and z
// their zones.
func (g *matching) admit(points []int64, room quotas, s scale, z zones) {
	g.room, g.scale = room, s
	g.home, g.place = z.home, z.place
	g.fields = newFields(points, s, g.place, z.count)
	g.count()
}

// allowed reports whether m may take u.
func (g *matching) allowed(u, m int32) bool {
	if g.topics == nil {
		return g.room.left[m] > 0
	}
	return g.topics.allowed(g.topics.of[u], m, g.room.left[m] > 0)
}

// live reports whether m has room for any unit.
func (g *matching) live(m int32) bool {
	return g.room.left[m] > 0 || g.topics != nil && g.topics.due[m] > 0
}

// give makes m the owner of u.
func (g *matching) give(u, m int32) {
	due := g.topics != nil && g.topics.change(g.topics.of[u], m, 1)
	g.owner[u] = m
	if !due && g.room.take(m) == drained {
		g.count()
		return
	}
	if !g.live(m) {
		g.field(nowhere, m).live--
		if g.place != nil && g.place[m] != nowhere {
			g.field(g.place[m], m).live--
		}
	}
}

// match assigns every unit but those that are stuck: in their turn, no member with room may take them. It returns the stuck
// units, sorted; without topics there are none. There must be room for all units.
func (g *matching) match() (stuck []int32) {
	choice := make([]int32, len(g.keys))
	first := make([]uint64, 0, len(g.keys)) // see propose
	for u := range g.keys {
		s := g.first(int32(u))
		if s.none() {
			stuck = append(stuck, int32(u))
			continue
		}
		choice[u] = s.member()
		first = append(first, g.propose(int32(u), s))
	}
	slices.Sort(first)
	var again heap
	for len(first) > 0 || len(again) > 0 {
		var p uint64
		if len(again) == 0 || len(first) > 0 && first[0] < again[0] {
			p, first = first[0], first[1:]
		} else {
			p = again.pop()
		}
		u := int32(p & (1<<31 - 1))
		if g.allowed(u, choice[u]) {
			g.give(u, choice[u])
			continue
		}
		s := g.nearest(u)
		if s.none() {
			stuck = append(stuck, u)
			continue
		}
		choice[u] = s.member()
		again.push(g.propose(u, s))
	}
	slices.Sort(stuck)
	return stuck
}

// propose returns the place of a pair in the order in which pairs are taken: one bit that is set if it is not in one zone, 32
// bits of the distance, 31 of the unit.
func (g *matching) propose(u int32, s suit) uint64 {
	p := uint64(g.scale.rank(s))<<31 | uint64(u)
	if g.zone(u) == nowhere {
		p |= 1 << 63
	}
	return p
}

// heap is a binary heap with the least value on top.
type heap []uint64

func (h *heap) push(x uint64) {
	s := append(*h, x)
	i := len(s) - 1
	for i > 0 && s[(i-1)/2] > x {
		s[i] = s[(i-1)/2]
		i = (i - 1) / 2
	}
	s[i] = x
	*h = s
}

// pop removes the least value, and lets the last one sink from the top.
func (h *heap) pop() uint64 {
	s := *h
	top, x := s[0], s[len(s)-1]
	s = s[:len(s)-1]
	*h = s
	if len(s) == 0 {
		return top
	}
	i := 0
	for c := 1; c < len(s); c = 2*i + 1 {
		_, less := bits.Sub64(s[min(c+1, len(s)-1)], s[c], 0)
		c += int(less) // a branch here would be mispredicted
		if x <= s[c] {
			break
		}
		s[i] = s[c]
		i = c
	}
	s[i] = x
	return top
}
