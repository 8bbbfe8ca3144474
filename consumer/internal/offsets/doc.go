// Package offsets keeps the positions of open partitions and commits them.
//
// A [Tracker] is the position of one open partition: where it started, what was marked since, and
// what is committed. A [Committer] holds the Trackers of one member and commits them, the marked
// ones together once an interval. Each commit is authorized by the partition's claim when it is
// written, and a partition that is given up is closed so that no commit of it is written or
// arrives later. A [Reader] reads committed offsets, those together that are asked for at the
// same time.
//
// Offsets are kept by a [Store]: [KafkaStore] keeps them in Kafka under the group's name,
// [MemoryStore] keeps them in memory for tests.
package offsets
