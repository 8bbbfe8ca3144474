package allocfn

import (
	"math"
	"slices"
)

// matching gives units, which are partitions or several that belong together,
// to members that suit them: of all pairs that are allowed it takes the one of
// the least distance on the ring, then the next, and so on, those in one zone
// before all others. Of equal distances the first unit's is taken, and of one
// unit's the least score.
//
// What is allowed only ever shrinks: a pair that is not will not be. So it does
// to remember each unit's best pair and to look for the next best when that is
// no longer allowed.
type matching struct {
	keys  []uint64 // of the units
	owner []int32  // of the units, -1 for none
	left  []int32  // room of each member; counts one of the pool while that lasts
	pool  int      // how many members may get one unit more than others

	// By zone; the first is that of all members.
	rings []*ring // the members that have room, and some that had
	live  []int   // how many have room
	home  []int32 // the zone of each unit, nowhere when none there may take it; nil without zones
	place []int32 // the zone of each member; nil without zones

	topics *topicRoom // when not nil, says more of what is allowed
}

// newMatching begins a matching in which no unit has an owner.
func newMatching(keys []uint64) *matching {
	g := &matching{keys: keys, owner: make([]int32, len(keys))}
	for u := range g.owner {
		g.owner[u] = -1
	}
	return g
}

// pointsOf returns the points of members of these hashes.
func pointsOf(names []uint64) []int64 {
	points := make([]int64, 0, pointSize*len(names))
	for m, name := range names {
		points = appendPoints(points, m, name, 1)
	}
	return points
}

// memberRing returns the ring of members of these hashes.
func memberRing(names []uint64) *ring { return newRing(pointsOf(names), len(names)) }

// admit gives every member room for so many units, and so many of them room for
// one more: those whose pairs are taken first.
func (g *matching) admit(r *ring, members, share, pool int) {
	g.left = make([]int32, members)
	g.rings, g.live = []*ring{r}, []int{members}
	g.pool = pool
	if pool > 0 {
		share++
	}
	for m := range g.left {
		g.left[m] = int32(share)
	}
}

// prefer makes pairs in one zone come first.
func (g *matching) prefer(z zones) {
	if z.home == nil {
		return
	}
	g.home, g.place = z.home, z.place
	g.rings = append(g.rings, z.rings[1:]...)
	g.live = append(g.live, make([]int, len(g.rings)-1)...)
	for _, zone := range g.place {
		if zone != nowhere {
			g.live[zone]++
		}
	}
}

// allowed reports whether m may take u.
func (g *matching) allowed(u, m int32) bool {
	return g.left[m] > 0 && (g.topics == nil || g.topics.allowed(g.topics.of[u], m))
}

// give makes m the owner of u.
func (g *matching) give(u, m int32) {
	if g.topics != nil {
		g.topics.change(g.topics.of[u], m, 1)
	}
	g.owner[u] = m
	g.left[m]--
	if g.left[m] > 0 {
		return
	}
	g.fill(m)
	if g.pool == 0 {
		return
	}
	g.pool--
	if g.pool > 0 {
		return
	}
	for m := range g.left { // nobody gets one more now
		if g.left[m] > 0 {
			g.left[m]--
			if g.left[m] == 0 {
				g.fill(int32(m))
			}
		}
	}
}

// fill counts that m has no room any more.
func (g *matching) fill(m int32) {
	g.live[nowhere]--
	if g.place != nil && g.place[m] != nowhere {
		g.live[g.place[m]]--
	}
}

// match gives every unit an owner, except those that are stuck: when it is their
// turn, none of the members that have room may take them. It returns these,
// sorted. Without topics there are none. There must be room for all.
func (g *matching) match() (stuck []int32) {
	type proposal = uint64 // 1<<62 if not in one zone, distance<<32, unit
	propose := func(u, zone int32, s score) proposal {
		p := uint64(s)>>32<<32 | uint64(u)
		if zone == nowhere {
			p |= 1 << 62
		}
		return p
	}
	choice := make([]int32, len(g.keys))
	first := make([]proposal, len(g.keys))
	for u, key := range g.keys {
		zone := g.zone(int32(u))
		s := g.rings[zone].best(key)
		choice[u] = s.member()
		first[u] = propose(int32(u), zone, s)
	}
	slices.Sort(first)
	var again heap
	for len(first) > 0 || len(again) > 0 {
		var p proposal
		if len(again) == 0 || len(first) > 0 && first[0] < again[0] {
			p, first = first[0], first[1:]
		} else {
			p = again.pop()
		}
		u := int32(uint32(p))
		if g.allowed(u, choice[u]) {
			g.give(u, choice[u])
			continue
		}
		s := g.nearest(u)
		if s == worstScore {
			stuck = append(stuck, u)
			continue
		}
		choice[u] = s.member()
		again.push(propose(u, g.zone(u), s))
	}
	slices.Sort(stuck)
	return stuck
}

// zone returns the zone in which u is looked for.
func (g *matching) zone(u int32) int32 {
	if g.home == nil {
		return nowhere
	}
	return g.home[u]
}

// nearest returns the score of the best pair of u that is allowed, worstScore
// if there is none.
func (g *matching) nearest(u int32) score {
	allowed := func(m int32) bool { return g.allowed(u, m) }
	if zone := g.zone(u); zone != nowhere {
		if s := g.nearestIn(zone, u, allowed); s != worstScore {
			return s
		}
		g.home[u] = nowhere // for good
	}
	return g.nearestIn(nowhere, u, allowed)
}

// nearestIn is nearest among the members of a zone that are allowed.
func (g *matching) nearestIn(zone, u int32, allowed func(m int32) bool) score {
	live := g.live[zone]
	if live == 0 {
		return worstScore
	}
	if old := g.rings[zone]; 2*live*pointSize < old.size() {
		points := make([]int64, 0, live*pointSize)
		for _, p := range old.points[1 : old.size()+1] {
			if g.left[int32(p)] > 0 {
				points = append(points, p)
			}
		}
		g.rings[zone] = newRing(points, live)
	}
	return g.rings[zone].nearest(g.keys[u], allowed)
}

// nearest returns the score of the member that suits best of those allowed.
func (r *ring) nearest(key uint64, allowed func(m int32) bool) score {
	best := worstScore
	for _, z := range probe(key) {
		i := int(r.cells[z>>r.shift] &^ crowded)
		for r.points[i] < z {
			i++
		}
		best = min(best, r.following(i, z, best, allowed), r.preceding(i-1, z, best, allowed))
	}
	return best
}

// following returns the score of the first allowed point from point i on, as
// seen from z, unless it is not better than best.
func (r *ring) following(i int, z int64, best score, allowed func(m int32) bool) score {
	n := r.size()
	for range n {
		if i > n {
			i -= n
			z -= ringSize
		}
		if s := score(r.points[i] - z); s >= best || allowed(s.member()) {
			return s
		}
		i++
	}
	return worstScore
}

// preceding is following in the other direction.
func (r *ring) preceding(i int, z int64, best score, allowed func(m int32) bool) score {
	n := r.size()
	for range n {
		if i < 1 {
			i += n
			z += ringSize
		}
		if s := score(z | math.MaxUint32 - r.points[i]); s >= best || allowed(s.member()) {
			return s
		}
		i--
	}
	return worstScore
}

// heap is a binary heap, the least on top.
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

func (h *heap) pop() uint64 {
	s := *h
	top, x := s[0], s[len(s)-1]
	s = s[:len(s)-1]
	*h = s
	i := 0
	for c := 1; c < len(s); c = 2*i + 1 {
		if c+1 < len(s) && s[c+1] < s[c] {
			c++
		}
		if x <= s[c] {
			break
		}
		s[i] = s[c]
		i = c
	}
	if len(s) > 0 {
		s[i] = x
	}
	return top
}
