// Package allocfn holds the functions that say which member of a group gets
// which partition.
//
// # Overview
//
// Members of a group do not elect a leader and send each other nothing. Each
// of them reads the members and the partitions from ZooKeeper and calls the
// same function on them; because the function is pure, all arrive at the same
// mapping. A [Func] is such a function together with the name that members
// agree on.
//
//   - [RoundRobin] is the default of the Python library kiel, to the byte of
//     its result: partition k of the sorted set goes to member k mod n.
//   - [Range] is Kafka's range assignor: each topic is cut into runs of
//     consecutive partitions, one run per member.
//   - [Balanced] gives everybody the same, or a share by weight, over all
//     topics together, prefers zones, and moves few partitions when a member
//     comes or goes.
//   - [TopicBalanced] spreads each topic and all of them together evenly, or by
//     weight, and prefers zones.
//   - [CoPartitioned] keeps equal numbers of topics with equally many
//     partitions at one member.
//   - [Ordinal] moves the least possible for members numbered 0 to n−1 that
//     come and go at the end.
//   - [Rendezvous] moves the least at any change, but spreads as by chance.
//   - [FromKiel] makes a Func of a function written for kiel, which maps names
//     to names.
//
// A user's own function is a Func too. [Call] is the way to run any of them:
// it recovers panics and checks the result. [Measure] compares two plans, and a
// [View] shows one by member and by topic.
//
// # Items
//
// A partition is written "topic:id" in the group's set. [Parse] reads one item
// and [ParseAll] a whole set, in the order and with the meaning that kiel
// gives it, also where an item is not written as we would write it; so a mixed
// group of Python and Go members agrees. See [ParseAll] for what happens to an
// item that only one of the languages understands.
//
// # Topics
//
// RoundRobin, Range, Balanced and TopicBalanced give a partition only to members that ask
// for its topic, [Member.Topics]. Where all members ask for the same topics, topics make
// no difference. A topic of the input that nobody asks for is divided as if all asked for
// it; package allocator leaves such topics out of the input.
//
// Balanced and TopicBalanced put topics that the same members ask for into one group and
// divide one group after the other: the group with the fewest askers first, and of groups
// with equally many the one whose first topic comes first, byte by byte. A group goes to
// those of its askers that have least so far, per weight: their totals are raised to one
// common level, as high as the group's partitions reach, and an asker above that level
// gets nothing. What an asker lacks to the level is rounded down, and the partitions that
// are then left go, one each, to the askers with the largest remainders. So a member that
// alone asks for a large topic may get nothing of the topics that others ask for too.
//
// Range cuts each topic over its askers. RoundRobin goes round the circle of members and
// gives each partition to the next one that asks for its topic. Neither looks at totals.
//
// CoPartitioned, Ordinal and Rendezvous ignore what members ask for, and so does
// every function made by [FromKiel].
//
// # State
//
// None. The package does no I/O; a call of Balanced with 65,536 partitions or more
// has a second goroutine, which ends before the call does. Nothing is kept between
// calls.
//
// # Guarantees
//
//   - The functions of this package are pure, total and deterministic: equal
//     inputs give equal results on every machine, in every process and with
//     every version of this package. They use integers only and never range
//     over a map to make a result. Golden vectors hold them to it.
//
//   - Each partition is given to exactly one member of the input, whenever
//     there is a member.
//
//   - RoundRobin, Range, Balanced, TopicBalanced: a partition of a topic that somebody
//     asks for is given to a member that asks for it. The next three points hold where
//     all members ask for the same topics, and otherwise only where they say so.
//
//   - RoundRobin: the numbers of partitions of any two members differ by at
//     most one. Range: the numbers of partitions of one topic of any two
//     members that ask for it differ by at most one, also where others ask for
//     other topics.
//
//   - Balanced: a member's number of partitions is its exact share, rounded
//     down or up; with equal weights the numbers of any two members differ by
//     at most one. With zones, a partition is with a member of another zone only
//     when all of its own have at least their share rounded down.
//
//   - TopicBalanced: a member's numbers of partitions, in total and in each topic, are
//     its exact shares, rounded down or up; with equal weights those of any two members
//     differ by at most one. Ordinal does so in total, and CoPartitioned in each topic
//     that has the same numbers as the others of its class; both ignore weights.
//
//   - Balanced and TopicBalanced, where members ask for different topics: after
//     each group of topics the totals so far of its askers are less than one away
//     from the exact ones; with equal weights the total of an asker that got any
//     of the group is at most one above that of any other asker. TopicBalanced: of
//     each topic an asker has its exact share of that, rounded down or up.
//
// # What Balanced moves
//
// No function that knows nothing of the plan before can always move as little
// as one that does. Measured, with equal weights, as a multiple of the least
// that any function could have moved (which is about the share of the one
// member), the mean over seeds and in brackets the worst, of other groups than in
// docs/choosing-a-function.md:
//
//	members × partitions    one joins       one leaves
//	10 × 1,000              1.24 [1.41]     1.21 [1.37]    200 seeds
//	100 × 10,000            1.90 [2.16]     1.90 [2.16]    800 seeds
//	1,000 × 100,000         3.12 [3.37]     4.60 [4.91]    30 seeds
//
// In partitions, that is about √P more than the least, P being all partitions,
// whatever the number of members, while each has no more than 1,000: 0.6 to 1.2 ×
// √P in the mean at 100 partitions per member, 1.0 to 1.3 at 1,000, and 2.5 to
// 3.8 at 10,000, where it is 10 to 26 % of the least. Up to 300 per member, 2.5 ×
// √P is a bound that tests hold it to, and up to 100 with weights up to 10,000.
// Sizes that members divide without a rest are no exception. RoundRobin moves 90
// to 99 % of all.
//
// Where weights differ, a join or leave moved 1.2 to 3.8 times the least in the mean at
// 100 partitions per member, with weights up to 16,000, and 3.7 to 6.1 times at 10 per
// member. A step of one percent of a member's weight, in a group of 10 × 1,000, moved
// about 3 partitions more than the least in the mean. In tests each such step moves at
// most √P more than the least, and another unit for all weights moves nothing.
//
// The others: up to 100 per member tests hold TopicBalanced, with any weights, to
// 2.5 × √(P·T) more than the least, T being the number of topics, and CoPartitioned
// in units of one class to 2.5 times the root of these. Rendezvous moves what the
// one who joins gets or the one who leaves had, and Ordinal exactly the least when
// that is the last one.
//
// Where members ask for different topics, a group of topics stands still while its
// askers are the same and have the same totals before it is divided. When one more
// or one less asks for it, and the others have the same totals before, the bounds
// above hold for the group. All together, 10 members and 5 topics of 200 partitions
// in seven shapes of differing topics (pyramids, disjoint, overlapping, nested, one
// asks for all): a join, a leave or a new topic that one member asks for moved 7 to
// 21 % of all partitions with Balanced and TopicBalanced, 1.0 to 2.2 times what the
// members' new numbers of partitions need; Range 0 to 29 %, RoundRobin 14 to 73 %.
// A deployment that replaces the 10 members one by one, each away and back under
// its name, and so adds a fifth topic moved 2.6 times all partitions with Balanced
// and 2.8 times with TopicBalanced, as much as one that takes the topic away;
// the same with no change of topics moved 2.4 and 2.8 times. Range moved 7.0
// times, RoundRobin 17 times.
//
// # Functions that fail
//
// A function that panics, returns an error or a wrong result harms nobody's
// process: [Call] makes an error of it, and a member of a group keeps the last
// mapping that could be computed. So does one whose function does not return,
// for as long as it does not. Where the function fails on all members, which
// is what a pure function does, nothing moves, and what a member that went had
// stays without an owner.
//
// Where it fails on one member alone, because that runs another version of it,
// the others go on with the new mapping. The member keeps, and works on, what
// it had: nobody is given any of that before it lets go. What the new mapping
// gives to the member has no owner, a member whose first computation fails
// owns nothing. There is no bound to that: the function is called again when
// members or partitions change, or when it is asked for, and not before; a
// pure one would fail again. So make readiness part of how a new version is
// rolled out, and watch the errors.
//
// # Not guaranteed
//
//   - Few moves. RoundRobin and Range move most partitions when a member comes
//     or goes.
//   - Topics spread evenly by Balanced: it evens out the sum, so that one member
//     may have several partitions of a topic where another has none.
//   - Balance by Rendezvous. The total of CoPartitioned. Topics of Ordinal, which
//     fails while a member that is not the last is away.
//   - Weights and zones: Balanced and TopicBalanced alone look at them.
//     The totals of TopicBalanced are those of Balanced nearly always, see there.
//   - Totals that are level where members ask for different topics, beyond what
//     each group of topics can level by itself.
//   - Little time where members ask for different topics: Balanced and TopicBalanced
//     take about 0.5 µs for each asker of each group of topics besides. Two lists make
//     three groups at most, but a dozen members with lists of their own can make as
//     many groups as there are topics: 3,000 groups of 10,000 askers take 10 s and more.
//   - A user's function is not checked for being pure; that it gives the same
//     result in every process is up to its author. The usual mistakes: ranging
//     over a map, hash/maphash (seeded per process), sorting with ties,
//     floating point (architectures round differently).
//
// # Concurrency
//
// Everything may be called from any number of goroutines. Nothing blocks.
package allocfn
