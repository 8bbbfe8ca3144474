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
// free and the member has room. Of each topic, its exact share rounded down is
// kept free for a member. More than that it may take when it has a rest in that
// topic, one at most, as long as the topic has some to spare, and no more of all
// topics than its quota has room for, which is that of Balanced. Weights above
// 2^31-1 count as that, equal weights as none.
//
// Where members ask for different topics, these are divided group by group, and
// both bounds are those of a group: see Topics on the package's page. Exactly, a
// member lacks something to the level of the group; of each topic its share is
// as what it lacks, rounded down or up.
//
// This can leave over some partitions that no member with room may take. Then, in
// order, each of them gets its place by a swap: the member that suits it best of
// those with room in the topic takes it, and hands on one that it has to a member
// with room in total. With equal weights and topics such a swap exists always; see
// the comment in the source. Where these differ, a few partitions need a chain of
// several members that hand on one each; the shortest is taken, and there always
// is one, for the exact shares can be rounded so that all bounds hold. So every
// partition has an owner and both bounds hold, whatever the input.
//
// The totals are those of Balanced, by largest remainder, unless no assignment
// with the bounds of topics has these. That is rare, but so with weights 3, 2, 2,
// 3, 2 and topics of 6 and 4 partitions: by largest remainder each member has 2 of
// the 10. But those of weight 3 have exactly 1 of the 4, and the others exactly 1
// of the 6, so that one of weight 3 must have 2 of the 6. Then others than those
// with the largest remainders have one more.
//
// When a topic comes or goes, about 1 % of the partitions of the others move, and
// with equal weights none, if n divides the numbers of the others. When one member
// comes or goes, 0.03 to 0.9 × √(P·T) partitions more than the least move in the
// mean, T being the number of topics. 2.5 × √(P·T) is a bound that tests hold it
// to with 2 to 31 members of up to 100 partitions each, with equal weights and
// others; for 10 members of equal weight 1.5 × √(P·T). As a multiple of the least,
// in the mean, with equal weights and with random ones from 1 to 100:
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
// With [Input.Zones], pairs in one zone come before all others, so that both
// bounds hold as without and a partition goes to a member of another zone only
// when those of its own have no room; but swaps and chains do not look at zones. A
// partition or member without a zone is in none.
//
// It takes about 0.5 µs and 100 bytes per partition, where weights differ 1 to 3
// µs. Topics with just as many partitions as there are members, or few less, take
// longer: with 2,000 members 2 µs per partition, where weights differ 7 µs.
func TopicBalanced() Func {
	return Func{Name: "topicbalanced", Assign: topicBalanced, harmless: topicBalanced}
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
	quotas quotas // of all topics
	shares shares // of each topic, to be rounded down or up; the quotas are such shares of all
}

// allotmentByWeight returns what members may take that have nothing yet.
func allotmentByWeight(in Input) allotment {
	return allotment{newQuotas(in.Members, totalOf(in.Members), len(in.Partitions)), sharesByWeight(in.Members)}
}

// topicBalancedWithin is TopicBalanced for members that may take what a says,
// whatever their weights.
func topicBalancedWithin(in Input, a allotment) Assignment {
	names := make([]uint64, len(in.Members))
	for m := range names {
		names[m] = hashName(in.Members[m].Name)
	}
	g := newTopicMatching(in, hashPartitions(in.Partitions), pointsOf(names), a)
	all := slices.Clone(g.fields[nowhere]) // while everybody is in them
	if stuck := g.match(); len(stuck) > 0 {
		held := g.held()
		if rest := g.swapIn(stuck, held, all); len(rest) > 0 {
			newChains(a, g, held).link(rest)
		}
	}
	return g.owner
}

// newTopicMatching begins a matching of partitions with these keys and members
// with these points. What is due to members of each topic they may always take;
// room is for what is extra.
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
