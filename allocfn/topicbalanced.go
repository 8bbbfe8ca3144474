package allocfn

// TopicBalanced returns "topicbalanced", which spreads each topic and all of
// them together: the numbers of partitions of any two members differ by at most
// one, and so do those of their partitions of any one topic. Few partitions move
// when members come and go, though more than with [Balanced], and few of other
// topics when a topic comes or goes.
//
// Members suit partitions as they do in [Balanced]. Pairs are taken in the order
// of their distances, then in that of the partitions, then by score; a pair
// counts when the partition is free and the member has room in total and in the
// topic. Room in total is ⌊P/n⌋, and one more for the P mod n members that come
// first; room in a topic is the same of the topic's partitions. This can leave
// over some partitions that no member with room may take. Then, in order, each
// of them gets its place by a swap: the member that suits it best of those with
// room in the topic takes it, and hands on one that it has to a member with room
// in total. Such a swap exists always; see the comment in the source. So every
// partition has an owner and both bounds hold, whatever the input.
//
// When one member comes or goes, about 0.6·√(P·T) partitions more than the least
// move, T being the number of topics; with 10 members 1.5·√(P·T) is a bound that
// tests hold it to. As a multiple of the least, in the mean:
//
//	members × partitions   topics of   one joins   one leaves
//	10 × 1,000             1,000       1.24        1.22
//	10 × 1,000             100         1.59        1.58
//	10 × 1,000             40          1.68        2.09
//	10 × 1,000             7           1.49        1.48
//	100 × 10,000           1,000       2.70        4.54
//	100 × 10,000           100         2.99        5.18
//	100 × 10,000           37          1.98        2.00
//	1,000 × 10,000         100         4.09        6.56
//
// With [Input.Zones], pairs in one zone come before all others, so that both
// bounds hold as without and a partition goes to a member of another zone only
// when those of its own have no room; but swaps do not look at zones. A partition
// or member without a zone is in none. Weights play no part.
//
// It takes about 0.5 µs and 100 bytes per partition. Topics with just as many
// partitions as there are members, or few less, take longer: with 2,000 members
// 4 µs per partition.
func TopicBalanced() Func {
	return Func{Name: "topicbalanced", Assign: topicBalanced, harmless: topicBalanced}
}

func topicBalanced(in Input) (Assignment, error) {
	n := len(in.Members)
	if n == 0 {
		return Assignment{}, nil
	}
	names := make([]uint64, n)
	for m := range names {
		names[m] = hashName(in.Members[m].Name)
	}
	points := pointsOf(names)
	all := newRing(points, n)
	g := newMatching(hashPartitions(in.Partitions))
	g.admit(all, n, len(in.Partitions)/n, len(in.Partitions)%n)
	g.prefer(newZones(in, points))
	g.topics = newTopicRoom(in, g.owner)
	g.swapIn(g.match(), all)
	return g.owner, nil
}

// swapIn gives owners to the units that are stuck. all is the ring of all
// members.
//
// There is always a way by one swap. Let u be stuck, and t its topic. Some
// member b has room in total, for there is room for all units. Some member a
// has room in t, for there is room for all units of t; it has none in total, or
// u were not stuck. So a has more units than b: both may have as many as the
// share, and one more as long as the pool lasts. In the same way b, which has
// no room in t, has more of t than a. So of the other topics together a has more
// than b, and there is one, s, of which a has more than b does. A unit v of s
// can go from a to b: a gives back what it took of the pool of s, if it did, and
// so b may have as many of s as a had. Then u goes to a, whose total is as
// before.
func (g *matching) swapIn(stuck []int32, all *ring) {
	if len(stuck) == 0 {
		return
	}
	held := make([][]int32, len(g.left)) // the units of each member
	for u, m := range g.owner {
		if m >= 0 {
			held[m] = append(held[m], int32(u))
		}
	}
	next := make([]int, len(g.left)) // where to look in held for one to hand on
	for _, u := range stuck {
		t := g.topics.of[u]
		if s := g.nearest(u); s != worstScore { // an earlier swap has made it possible
			g.give(u, s.member())
			held[s.member()] = append(held[s.member()], u)
			continue
		}
		a := all.nearest(g.keys[u], func(m int32) bool { return g.topics.allowed(t, m) }).member()
		place, b := g.handOn(a, held[a], next[a])
		v := held[a][place]
		g.topics.change(g.topics.of[v], a, -1)
		g.give(v, b)
		held[b] = append(held[b], v)
		g.topics.change(t, a, 1)
		g.owner[u] = a
		held[a][place] = u
		next[a] = place + 1
	}
}

// handOnTries is how many units that can be handed on are compared.
const handOnTries = 16

// handOn returns which of its units member a hands on, as a place in held, and
// to whom: of the first few that it can, from the place begin on and then from
// the first, the one that suits its new owner best.
func (g *matching) handOn(a int32, held []int32, begin int) (place int, to int32) {
	best, found := worstScore, 0
	for k := range held {
		k = (begin + k) % len(held)
		v := held[k]
		topic := g.topics.of[v]
		has := g.topics.count(topic, a)
		s := g.nearestIn(nowhere, v, func(b int32) bool { return g.left[b] > 0 && g.topics.count(topic, b) < has })
		if s == worstScore {
			continue
		}
		if s < best {
			best, place = s, k
		}
		if found++; found == handOnTries {
			break
		}
	}
	return place, best.member()
}
