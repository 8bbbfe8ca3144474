package allocfn

import (
	"math"
	"slices"
)

// matching gives units, which are partitions or several that belong together,
// to members that suit them: of all pairs that are allowed it takes the one of
// the least distance on the ring, then the next, and so on. Of equal distances
// the first unit's is taken, and of one unit's the least score.
//
// What is allowed only ever shrinks: a pair that is not will not be. So it does
// to remember each unit's best pair and to look for the next best when that is
// no longer allowed.
type matching struct {
	keys  []uint64 // of the units
	owner []int32  // of the units, -1 for none
	ring  *ring    // the members that have room, and some that had
	left  []int32  // room of each member; counts one of the pool while that lasts
	pool  int      // how many members may get one unit more than others
	live  int      // members that have room

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

// memberRing returns the ring of members of these hashes.
func memberRing(names []uint64) *ring {
	points := make([]int64, 0, pointSize*len(names))
	for m, name := range names {
		points = appendPoints(points, m, name, 1)
	}
	return newRing(points, len(names))
}

// admit gives every member room for so many units, and so many of them room for
// one more: those whose pairs are taken first.
func (g *matching) admit(r *ring, members, share, pool int) {
	if len(g.left) != members {
		g.left = make([]int32, members)
	}
	g.ring, g.pool, g.live = r, pool, members
	if pool > 0 {
		share++
	}
	for m := range g.left {
		g.left[m] = int32(share)
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
	g.live--
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
				g.live--
			}
		}
	}
}

// match gives every unit an owner, except those that are stuck: when it is their
// turn, none of the members that have room may take them. It returns these,
// sorted. Without topics there are none. There must be room for all.
func (g *matching) match() (stuck []int32) {
	type proposal = uint64 // distance<<32 | unit
	choice := make([]int32, len(g.keys))
	first := make([]proposal, len(g.keys))
	for u, key := range g.keys {
		s := g.ring.best(key)
		choice[u] = s.member()
		first[u] = uint64(s)>>32<<32 | uint64(u)
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
		again.push(uint64(s)>>32<<32 | uint64(u))
	}
	slices.Sort(stuck)
	return stuck
}

// nearest returns the score of the best pair of u that is allowed, worstScore
// if there is none.
func (g *matching) nearest(u int32) score {
	if open := g.live * pointSize; 2*open < g.ring.size() {
		points := make([]int64, 0, open)
		for _, p := range g.ring.points[1 : g.ring.size()+1] {
			if g.left[int32(p)] > 0 {
				points = append(points, p)
			}
		}
		g.ring = newRing(points, g.live)
	}
	return g.ring.nearest(g.keys[u], func(m int32) bool { return g.allowed(u, m) })
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
