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

// swapIn finds owners for the stuck units that one swap can place: a member takes the unit and hands on another one that it has.
// It returns the other units; there are some only where weights differ. held has the units of each member, and all the fields of
// all members.
//
// With equal weights one swap is always enough. Members have what is due to them, because a unit that is due to a member is not
// stuck. Let u be stuck, and t its topic. Some member b has room for one more, because there is room for all units. Some member a
// has no extra unit of t, because not all members can have one. Member a has no room, or u would not be stuck; so it has more
// extra units than b: both may have equally many, and one more as long as the pool lasts. In the same way b, which has room, has
// an extra unit of t. So of the other topics together a has more extra units than b, and there is a topic s of which a has one
// and b has none. A unit v of s can go from a to b, and u to a, whose total is as before.
func (g *matching) swapIn(stuck []int32, held [][]int32, all []field) (rest []int32) {
	next := make([]int, len(held)) // by member, the place in held to look at first for a unit to hand on
	var open []int32               // the members with room, and some that had room
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

// handOn returns the unit that member a hands on, as a place in held, and its new owner. All members with room are in open. Of
// the first handOnTries units that a can hand on, from the place begin on and round, it is the one that suits its new owner best.
// handOn returns -1 if there is none. The unit is an extra one of a, and the new owner has no extra one of its topic.
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
