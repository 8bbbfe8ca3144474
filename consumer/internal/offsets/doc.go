// Package offsets keeps the positions of open partitions and commits them.
//
// A [Tracker] is the position of one open partition: its start, its marks, and the committed offset. A [Committer] holds the
// Trackers of one member and commits all marked ones together, once an interval. Each commit is authorized by the partition's
// claim when it is written. When a partition is given up, its Tracker is closed so that no commit of it is written or arrives
// later. A [Reader] reads committed offsets; requests at the same time are read together.
//
// Offsets are kept by a [Store]: [KafkaStore] keeps them in Kafka under the group's name, [MemoryStore] keeps them in memory for
// tests.
package offsets
