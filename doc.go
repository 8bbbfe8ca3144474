// Package kiel divides the partitions of Kafka topics among the members of a group, which meet only in ZooKeeper. It is the Go
// port of the Python library kiel, on the same znodes. This root has what all packages below share, a [Partition] and the rules
// for names, and imports the standard library alone.
//
// # Where to begin
//
//   - A program that consumes: package consumer, whose NewGroup is a sarama.ConsumerGroup, and whose Group.Run needs nothing of
//     sarama's interfaces.
//   - Work other than consuming that has one owner at a time: package ownership, on an allocator and a session.
//   - Only the mapping, as the Python class gives it, without claims: package allocator.
//   - The functions that make the mapping, and those that compare mappings: package allocfn.
//   - A group from outside, for programs and in a browser: packages consumer/inspect and consumer/page.
//   - ZooKeeper itself: package session, package party, and kazoo's recipes, one package each below recipe.
//   - What a group looks like, for people and for probes: packages status and health.
//   - Tests without servers: package consumertest for handlers, and package zktest, a ZooKeeper in memory.
//
// # Partitions
//
// The set of a group is a list of items "topic:id". [ParsePartition] reads one and [ParsePartitions] a whole set, with the
// meaning that Python kiel gives them, also where an item is not written as [Partition.String] writes it; so a mixed group of
// Python and Go members agrees. Their order is that of their texts, byte by byte: [Partition.Compare] and [SortPartitions].
//
// # Names
//
// Names that we write become parts of znodes' paths, so they are checked first: by [CheckGroup], [CheckTopic] and [CheckMember].
// Names that other programs have written are taken as they are.
//
// A group has any name that Kafka accepts, up to 249 bytes: what its znode can't hold is escaped there ([GroupZnode]), and
// nowhere else. [GroupOfZnode] reads the name of a znode back.
//
// # Concurrency
//
// Everything may be called from any number of goroutines. Nothing blocks.
package kiel
