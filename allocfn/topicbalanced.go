package allocfn

import "slices"

// TopicBalanced returns "topicbalanced", which spreads each topic and all of
// them together: the numbers of partitions of any two members differ by at most
// one, and so do those of their partitions of any one topic. With weights, a
// member's numbers are its exact shares of each topic and of all, n·w/W of n
// partitions, W being the sum of the weights, rounded down or up. Few partitions
// move when members come and go, though more than with [Balanced], and few of
// other topics when a topic comes or goes.
//
// Members suit partitions as they do in [Balanced], but weights give nobody more
// points: distances are divided by them. So how well two suit each other depends
// on nothing but these two. Pairs are taken in the order of their distances, then
// in that of the partitions, then by score; a pair counts when the partition is
// free and the member has room in total and in the topic. Room in total is the
// quota of Balanced. Room in a topic is the exact share rounded down, and one
// more for as many as are needed of those whose share has a rest, those that come
// first. Weights above 2^31-1 count as that, equal weights as none.
//
// This can leave over some partitions that no member with room may take. Then, in
// order, each of them gets its place by a swap: the member that suits it best of
// those with room in the topic takes it, and hands on one that it has to a member
// with room in total. With equal weights such a swap exists always; see the
// comment in the source. Where weights differ, a few partitions may need a chain
// of several members that hand on one each; the shortest is taken. A chain exists
// always, for exact shares, rounded in the right way, are one. So every
// partition has an owner and both bounds hold, whatever the input. The totals are
// those of Balanced, by largest remainder, unless no assignment with the bounds of
// topics has these, which is rare. An example are weights 3, 2, 2, 3, 2 and topics
// of 6 and 4 partitions: those of weight 3 can't both be left at 2 of all 10, since
// they have exactly one of the 4, and the others exactly one of the 6. Then others
// than those with the largest remainders have one more.
//
// When one member comes or goes, about 0.6·√(P·T) partitions more than the least
// move, T being the number of topics. 2.5·√(P·T) is a bound that tests hold it to
// with 2 to 31 members of up to 100 partitions each, with equal weights and
// others; for 10 members of equal weight 1.5·√(P·T). As a multiple of the least,
// in the mean, with equal weights and with random ones from 1 to 100:
//
//	                                    equal weights          1 to 100
//	members × partitions   topics of   joins    leaves      joins    leaves
//	10 × 1,000             1,000       1.24     1.22        1.21     1.18
//	10 × 1,000             100         1.59     1.58        1.74     1.61
//	10 × 1,000             40          1.68     2.09        2.11     1.94
//	10 × 1,000             7           1.49     1.48        2.45     2.27
//	100 × 10,000           1,000       2.70     4.54        5.3      5.5
//	100 × 10,000           100         2.99     5.18        7.0      7.4
//	100 × 10,000           37          1.98     2.00        2.1      2.2
//	1,000 × 10,000         100         4.09     6.56        6.9      5.7
//
// With [Input.Zones], pairs in one zone come before all others, so that both
// bounds hold as without and a partition goes to a member of another zone only
// when those of its own have no room; but swaps and chains do not look at zones. A
// partition or member without a zone is in none.
//
// It takes about 0.5 µs and 100 bytes per partition. Topics with just as many
// partitions as there are members, or few less, take longer: with 2,000 members
// 4 µs per partition. Where weights differ it is 2 to 6 times as much, at worst
// about 30 µs.
func TopicBalanced() Func {
	return Func{Name: "topicbalanced", Assign: topicBalanced, harmless: topicBalanced}
}

func topicBalanced(in Input) (Assignment, error) {
	if len(in.Members) == 0 {
		return Assignment{}, nil
	}
	names := make([]uint64, len(in.Members))
	for m := range names {
		names[m] = hashName(in.Members[m].Name)
	}
	g := newTopicMatching(in, hashPartitions(in.Partitions), pointsOf(names))
	all := slices.Clone(g.fields[nowhere]) // while everybody is in them
	if stuck := g.match(); len(stuck) > 0 {
		held := g.held()
		rest := g.swapIn(stuck, held, all)
		newChains(in, g, held).link(rest)
	}
	return g.owner, nil
}

// newTopicMatching begins a matching of partitions with these keys and members
// with these points.
func newTopicMatching(in Input, keys []uint64, points []int64) *matching {
	g := newMatching(keys)
	g.admit(points, newQuotas(in.Members, len(keys)), newScale(in.Members), newZones(in, nil))
	g.topics = newTopicRoom(in, g.owner)
	return g
}
