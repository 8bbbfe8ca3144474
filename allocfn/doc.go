// Package allocfn holds the functions that say which member of a group gets which partition.
//
// # Overview
//
// The members of a group elect no leader and exchange no messages. Each of them reads the members and the partitions from
// ZooKeeper and calls the same function on them; because the function is pure, all arrive at the same mapping. A [Func] is such a
// function together with the name that members agree on.
//
//   - [RoundRobin] is the default of the Python library kiel, to the byte of its result: partition k of the sorted set goes to
//     member k mod n.
//   - [Range] is Kafka's range assignor: each topic is cut into runs of consecutive partitions, one run per member.
//   - [Balanced] assigns equally many partitions to all members, or a share by weight, counted over all topics together. It
//     prefers zones, and moves few partitions when a member joins or leaves.
//   - [TopicBalanced] spreads each topic and all of them together evenly, or by weight, and prefers zones.
//   - [CoPartitioned] assigns partitions of the same id to one member, over all topics with equally many partitions.
//   - [Ordinal] moves the least possible for members numbered 0 to n−1 of which the last ones join and leave.
//   - [Rendezvous] moves the least at any change, but balances only by chance.
//   - [FromKiel] makes a Func of a function written for kiel, which maps names to names.
//
// [All] returns all but the last, and what each goes by.
//
// A user's own function is a Func, too; [FromMapping] helps with results by names, and consumer.FromStrategy makes one of a
// strategy that was written for sarama. [Call] runs any of them, recovers panics and checks the result. [Measure] compares two
// plans, and a [View] shows one by member and by topic.
//
// # Items
//
// A partition is written "topic:id" in the group's set. [kiel.ParsePartitions] reads a set and says what happens to an item that
// only one of the languages, Python and Go, understands.
//
// # Topics
//
// RoundRobin, Range, Balanced and TopicBalanced give a partition only to members that ask for its topic, [Member.Topics]. Where
// all members ask for the same topics, topics make no difference. A topic of the input that nobody asks for is divided as if all
// asked for it; package allocator leaves such topics out of the input.
//
// Balanced and TopicBalanced put topics that the same members ask for into one group and divide one group after the other: the
// group with the fewest askers first; groups with equally many askers are in the order of their first topics, byte by byte. A
// group is divided among those of its askers that have least so far, per weight: it raises their totals to one common level, as
// high as the group's partitions reach, and an asker above that level gets nothing. What an asker lacks to the level is rounded
// down; the askers with the largest remainders then get one each of the partitions that are left. So a member that alone asks for
// a large topic may get nothing of the topics that others ask for, too.
//
// Range cuts each topic over its askers. RoundRobin goes round the circle of members and assigns each partition to the next one
// that asks for its topic. Neither looks at totals.
//
// CoPartitioned, Ordinal and Rendezvous ignore what members ask for, and so does every function made by [FromKiel].
//
// # State
//
// None. The package does no I/O and keeps nothing between calls. A call of Balanced with 65,536 partitions or more has a second
// goroutine, which ends before the call does.
//
// # Guarantees
//
//   - The functions of this package are pure, total and deterministic: equal inputs give equal results on every machine, in every
//     process and with every version of this package. They use integers only and never range over a map to make a result. Golden
//     vectors hold them to it.
//
//   - Each partition is assigned to exactly one member of the input, whenever there is a member.
//
//   - RoundRobin, Range, Balanced, TopicBalanced: a partition of a topic that a member asks for is assigned to a member that asks
//     for it. The next three points hold where all members ask for the same topics, and otherwise only where they say so.
//
//   - RoundRobin: the numbers of partitions of any two members differ by at most one. Range: the numbers of partitions of one
//     topic of any two members that ask for it differ by at most one, also where others ask for other topics.
//
//   - Balanced: a member's number of partitions is its exact share, rounded down or up; with equal weights the numbers of any two
//     members differ by at most one. With zones, a partition is with a member of another zone only when all of its own have at
//     least their share rounded down.
//
//   - TopicBalanced: a member's numbers of partitions, in total and in each topic, are its exact shares, rounded down or up; with
//     equal weights those of any two members differ by at most one. So do those of Ordinal in total, and those of CoPartitioned
//     in each topic that has the same ids as the others of its class; both ignore weights.
//
//   - Balanced and TopicBalanced, where members ask for different topics: after each group of topics the totals so far of its
//     askers are less than one away from the exact ones; with equal weights the total of an asker that got any partition of the
//     group is at most one above that of any other asker. TopicBalanced: of each topic an asker has its exact share, rounded down
//     or up.
//
// # What Balanced moves
//
// A function that does not know the plan before cannot always move as few partitions as one that does. The table shows moves that
// were measured with equal weights, as a multiple of the least that any function could have moved, which is about the share of
// the one member: the mean over the seeds and, in brackets, the worst. The groups are not those of docs/choosing-a-function.md.
//
//	members × partitions    one joins       one leaves
//	10 × 1,000              1.24 [1.41]     1.21 [1.37]    200 seeds
//	100 × 10,000            1.90 [2.16]     1.90 [2.16]    800 seeds
//	1,000 × 100,000         3.12 [3.37]     4.60 [4.91]    30 seeds
//
// In partitions, Balanced moves about √P more than the least, P being the number of all partitions, whatever the number of
// members, while each has no more than 1,000: in the mean 0.6 to 1.2 × √P at 100 partitions per member and 1.0 to 1.3 × √P at
// 1,000. At 10,000 it is 2.5 to 3.8 × √P, which is 10 to 26 % of the least. Tests hold it to a bound of 2.5 × √P up to 300
// partitions per member, and with weights up to 10,000 up to 100 per member, also where the members divide the partitions without
// a rest. RoundRobin moves 90 to 99 % of all.
//
// Where weights differ, a join or leave moved 1.2 to 3.8 times the least in the mean at 100 partitions per member, with weights
// up to 16,000, and 3.7 to 6.1 times at 10 per member. A step of one percent of a member's weight, in a group of 10 × 1,000,
// moved about 3 partitions more than the least in the mean. In tests each such step moves at most √P more than the least, and a
// change of the unit of all weights moves nothing.
//
// Up to 100 partitions per member, tests hold TopicBalanced, with any weights, to 2.5 × √(P·T) more than the least, T being the
// number of topics, and CoPartitioned to 2.5 × √U, U being the units of one class. Rendezvous moves what the joiner gets or the
// leaver had. Ordinal moves exactly the least when the last member joins or leaves.
//
// Where members ask for different topics, nothing of a group of topics moves while its askers are the same and have the same
// totals before it is divided. When one member more or one less asks for it, and the others have the same totals before, the
// bounds above hold for the group. Seven shapes of differing topics (among them pyramids, disjoint, overlapping, nested, one asks
// for all) were measured with 10 members and 5 topics of 200 partitions: a join, a leave or a new topic that one member asks for
// moved 7 to 21 % of all partitions with Balanced and TopicBalanced, 1.0 to 2.2 times what the members' new numbers of partitions
// need; with Range 0 to 29 %, with RoundRobin 14 to 73 %. A deployment restarted the 10 members one by one under their names,
// with a fifth topic: it moved 2.6 times all partitions with Balanced and 2.8 times with TopicBalanced, as much as one that takes
// the topic away. Without a change of topics it moved 2.4 and 2.8 times; with Range 7.0 times, with RoundRobin 17 times.
//
// # Functions that fail
//
// A function that panics, or returns an error or a wrong result, does no harm to the process: [Call] returns an error, and a
// member of a group keeps the last mapping that it computed. So does a member whose function does not return, until it returns. A
// pure function fails on all members alike: then nothing moves, and the partitions of a member that left stay without an owner.
//
// Where a function fails on one member alone, because that member runs another version of it, the others go on with the new
// mapping. The member keeps the partitions that it had and works on them: no other member gets one of them before it releases
// them. Partitions that the new mapping assigns to the member have no owner, and a member whose first computation fails owns
// nothing. Nothing bounds how long this lasts: the function is called again only when members or partitions change or when
// somebody asks for it, because a pure one would fail again. So make readiness part of the rollout of a new version, and watch
// the errors.
//
// # Not guaranteed
//
//   - Few moves. RoundRobin and Range move most partitions when a member joins or leaves.
//   - Topics spread evenly by Balanced: it levels the totals, so that one member may have several partitions of a topic where
//     another has none.
//   - Balance by Rendezvous, level totals by CoPartitioned, and topics spread evenly by Ordinal, which also fails while a member
//     that is not the last is away.
//   - Weights and zones: only Balanced and TopicBalanced look at them. The totals of TopicBalanced are nearly always those of
//     Balanced, see there.
//   - Level totals where members ask for different topics, beyond what each group of topics can level by itself.
//   - Speed where members ask for different topics: Balanced and TopicBalanced then take about 0.5 µs more for each asker of each
//     group of topics. Two lists make three groups at most, but a dozen members with lists of their own can make as many groups
//     as there are topics: 3,000 groups of 10,000 askers take 10 s and more.
//   - Purity of a user's function: nothing checks it; its author must see to it that the result is the same in every process. The
//     usual mistakes: ranging over a map, hash/maphash (seeded per process), sorting with ties, floating point (architectures
//     round differently).
//
// # Concurrency
//
// Everything may be called from any number of goroutines. Nothing blocks.
package allocfn
