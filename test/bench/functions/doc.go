// Package functions measures the allocation functions of package allocfn, and beside them in the same run those of the Kafka
// clients for Go that plan for a whole group as well: franz-go's sticky and sarama's range, round robin and sticky.
//
// # What is timed
//
// Everything that a side can know before a change of the group is made before and not timed. allocfn's functions begin with the
// sorted members and partitions as an Input, and end with an assignment that [allocfn.Call] has checked; the rows of Balanced say
// what else is in, and one of them begins with lists that are not sorted and ends with nested maps. franz-go begins with the
// members' metadata as the broker hands it to the leader, bytes that it decodes, and the number of partitions of each topic.
// sarama begins with decoded metadata and the lists of partitions. Both end with their plan as nested maps. No figure includes:
// the network, encoding what the leader sends to the members, and for allocfn's functions reading ZooKeeper.
//
// franz-go's sticky is its StickyBalancer: the cooperative one does the same and then takes away what changed hands, so it takes
// longer, and two rounds.
//
// # What is measured of a plan
//
// How many partitions change hands when one member joins and when one leaves, and how evenly plans spread the partitions; see
// [Moves] and [Spread].
//
// The results are in files, testdata/*.json of test/bench, of which test/cmd/plots makes the pictures and tables of
// docs/choosing-a-function.md.
package functions
