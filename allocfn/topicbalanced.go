package allocfn

import "slices"

// TopicBalanced returns "topicbalanced", which balances each topic and the total: the numbers of partitions of any two members
// differ by at most one, and so do their numbers of partitions of any one topic. With weights, a member's numbers are its exact
// shares of each topic and of the total, n·w/W of n partitions, W being the sum of the weights, rounded down or up. Few
// partitions move when members join and leave, though more than with [Balanced], and few partitions of other topics move when a
// topic is added or removed. (KAFKA-16277 is about an assignor that balances the total alone.)
//
// Members suit partitions as they do in [Balanced]. Distances are divided by weights, and weights give no member more points, so
// how well a member suits a partition depends on these two alone. TopicBalanced takes the pairs in the order of their distances,
// then in that of the partitions, then by score, and assigns the partition if it is free and the member has room. Each member has
// its exact share of each topic, rounded down, kept free for it. If it has a rest in that topic, it may take one more, as long as
// the topic has some to spare, and as long as its quota of all topics has room, which is that of Balanced. Weights above 2^31-1
// count as 2^31-1, equal weights as none.
//
// Where members ask for different topics, these are divided group by group, and both bounds are those of a group: see Topics on
// the package's page. A member's exact total is what it lacks to the level of the group; its share of each topic is in proportion
// to that, rounded down or up.
//
// This can leave some partitions that no member with room may take. Then, in order, each of them gets its place by a swap: of the
// members with room in the topic, the one that suits it best takes it, and hands on another partition to a member with room in
// total. With equal weights and topics such a swap always exists; see the comment in the source. Where weights or topics differ,
// a few partitions need a chain of several members that hand on one each. The shortest is taken. There always is one, because the
// exact shares can be rounded so that all bounds hold. So every partition has an owner and both bounds hold, whatever the input.
//
// The totals are those of Balanced, by largest remainder, unless no assignment within the bounds of topics has these. That is
// rare. An example are the weights 3, 2, 2, 3, 2 and topics of 6 and 4 partitions: by largest remainder each member has 2 of the
// 10. But those of weight 3 have exactly 1 of the 4, and the others exactly 1 of the 6, so that one of weight 3 must have 2 of
// the 6. Then other members than those with the largest remainders have one more.
//
// When a topic is added or removed, about 1 % of the partitions of the others move, and with equal weights none if n divides the
// numbers of the others. When one member joins or leaves, in the mean 0.03 to 0.9 × √(P·T) partitions more than the least move, T
// being the number of topics. Tests hold it to at most 2.5 × √(P·T) more with 2 to 31 members of up to 100 partitions each, with
// equal weights and others, and to 1.5 × √(P·T) for 10 members of equal weight. The table has the mean moves as a multiple of the
// least, with equal weights and with random ones from 1 to 100:
//
//	                                   equal weights         1 to 100
//	members × partitions   topics of   joins    leaves      joins    leaves
//	10 × 1,000             1,000       1.23     1.20        1.20     1.18
//	10 × 1,000             100         1.58     1.54        1.54     1.48
//	10 × 1,000             40          1.62     1.99        1.79     1.71
//	10 × 1,000             7           1.45     1.47        2.06     2.05
//	100 × 10,000           1,000       2.66     3.92        3.36     3.48
//	100 × 10,000           100         2.89     5.01        4.17     4.28
//	100 × 10,000           37          2.04     1.99        2.17     2.21
//	1,000 × 10,000         100         4.00     6.55        7.21     5.55
//
// A new weight of a member moves no more than that either, however large it is.
//
// With [Input.Zones], pairs in one zone come before all others: a partition is assigned to a member of another zone only when the
// members of its own have no room. Both bounds hold as without zones, but swaps and chains do not look at zones. A partition or
// member without a zone is in none.
//
// It takes about 0.5 µs and 100 bytes per partition; where weights differ, 1 to 3 µs. Topics with just as many partitions as
// there are members, or a few less, take longer: with 2,000 members 2 µs per partition; where weights differ, 7 µs.
func TopicBalanced() Func {
	return Func{Name: "topicbalanced", Assign: topicBalanced, readOnly: topicBalanced}
}

func topicBalanced(in Input) (Assignment, error) {
	if len(in.Members) == 0 {
		return Assignment{}, nil
	}
	groups := groupByAskers(in)
	if groups == nil {
		return topicBalancedWithin(in, allotmentByWeight(in)), nil
	}
	in.Members = lighter(in.Members, len(in.Partitions))
	return fillUp(in, groups, func(group Input, have []int32, l level) (Assignment, error) {
		return topicBalancedWithin(group, allotment{
			l.quotas(group.Members, have), l.shares(group.Members, have, len(group.Partitions)),
		}), nil
	})
}

// allotment says what members may take of the partitions of some topics.
type allotment struct {
	quotas quotas // how many partitions of all topics; these are the shares, rounded down or up
	shares shares // the exact share of each topic, which is rounded down or up
}

// allotmentByWeight returns what members may take that have nothing yet.
func allotmentByWeight(in Input) allotment {
	return allotment{newQuotas(in.Members, totalOf(in.Members), len(in.Partitions)), sharesByWeight(in.Members)}
}

// topicBalancedWithin is TopicBalanced for members that may take what a says, whatever their weights.
func topicBalancedWithin(in Input, a allotment) Assignment {
	names := make([]uint64, len(in.Members))
	for m := range names {
		names[m] = hashName(in.Members[m].Name)
	}
	g := newTopicMatching(in, hashPartitions(in.Partitions), pointsOf(names), a)
	all := slices.Clone(g.fields[nowhere]) // while all members are in them
	if stuck := g.match(); len(stuck) > 0 {
		held := g.held()
		if rest := g.swapIn(stuck, held, all); len(rest) > 0 {
			newChains(a, g, held).link(rest)
		}
	}
	return g.owner
}

// newTopicMatching begins a matching of partitions with these keys and members with these points. Members may always take what is
// due to them of each topic; room counts only the extra ones.
func newTopicMatching(in Input, keys []uint64, points []int64, a allotment) *matching {
	g := newMatching(keys)
	g.topics = newTopicRoom(in, a.shares, g.owner)
	room := a.quotas
	room.left = slices.Clone(room.left)
	for m, due := range g.topics.due {
		room.left[m] -= due
	}
	g.admit(points, room, newScale(in.Members), newZones(in))
	return g
}
