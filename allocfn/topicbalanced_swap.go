package allocfn

import "slices"

// held returns the units of each member.
func (g *matching) held() [][]int32 {
	held := make([][]int32, len(g.room.left))
	for u, m := range g.owner {
		if m >= 0 {
			held[m] = append(held[m], int32(u))
		}
	}
	return held
}

// swapIn gives owners to the units that are stuck, as far as one swap does it:
// a member takes the unit and hands on one that it has. It returns the others,
// which there are only where weights differ. held is what each member has, and
// all are the fields of all members.
//
// With equal weights there is always a way by one swap. What is due to members
// they have, for a unit that is due to somebody is not stuck. Let u be stuck, and
// t its topic. Some member b has room for one more, for there is room for all
// units. Some member a has nothing extra of t, for not all members can have. It
// has no room, or u were not stuck; so it has more that is extra than b: both may
// have as many, and one more as long as the pool lasts. In the same way b, which
// has room, has one of t. So of the other topics together a has more that is
// extra than b, and there is one, s, of which a has one and b has not. A unit v of
// s can go from a to b, and u to a, whose total is as before.
func (g *matching) swapIn(stuck []int32, held [][]int32, all []field) (rest []int32) {
	next := make([]int, len(held)) // where to look in held for one to hand on
	var open []int32               // who has room, and some who had
	for m, left := range g.room.left {
		if left > 0 {
			open = append(open, int32(m))
		}
	}
	for _, u := range stuck {
		t := g.topics.of[u]
		if s := g.nearest(u); !s.none() { // an earlier swap has made it possible
			g.give(u, s.member())
			held[s.member()] = append(held[s.member()], u)
			continue
		}
		open = slices.DeleteFunc(open, func(m int32) bool { return g.room.left[m] == 0 })
		best := unsuited()
		for class, f := range all {
			allowed := func(m int32) bool { return g.topics.allowed(t, m, true) }
			best = g.scale.nearest(f.ring, g.keys[u], class, best, allowed)
		}
		a := best.member()
		place, b := g.handOn(a, held[a], next[a], open)
		if place < 0 {
			rest = append(rest, u)
			continue
		}
		v := held[a][place]
		g.topics.change(g.topics.of[v], a, -1)
		g.give(v, b)
		held[b] = append(held[b], v)
		g.topics.change(t, a, 1)
		g.owner[u] = a
		held[a][place] = u
		next[a] = place + 1
	}
	return rest
}

// handOnTries is how many units that can be handed on are compared.
const handOnTries = 16

// handOn returns which of its units member a hands on, as a place in held, and
// to which of those that have room, which are all in open: of the first few that it can, from the place begin on and then from
// the first, the one that suits its new owner best. It returns -1 if there is
// none. What it hands on is extra, and the new owner has nothing extra of that
// topic.
func (g *matching) handOn(a int32, held []int32, begin int, open []int32) (place int, to int32) {
	best, found := unsuited(), 0
	place = -1
	for k := range held {
		k = (begin + k) % len(held)
		v := held[k]
		topic := g.topics.of[v]
		has, _ := g.topics.above(topic, a)
		less := func(b int32) bool {
			above, most := g.topics.above(topic, b)
			return above < min(has, most) && g.room.left[b] > 0
		}
		if !slices.ContainsFunc(open, less) {
			continue
		}
		s := g.nearestIn(nowhere, v, less)
		if s.less(best) {
			best, place = s, k
		}
		if found++; found == handOnTries {
			break
		}
	}
	return place, best.member()
}
