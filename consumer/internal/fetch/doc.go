// Package fetch reads partitions from Kafka's brokers. Readers pull: they ask for the next batch of messages when they have room
// for it.
//
// A [Fetcher] has a state goroutine, [Fetcher.Run], which finds the leader of each partition. For each broker there are two
// connections, each with one goroutine of this package and one of sarama's Broker; a partition has no goroutine. The first
// connection of a broker carries the long poll for all partitions with room. While that poll is in flight, the second fetches the
// partitions that become ready, in short polls.
//
// # Guarantees
//
//   - Batches of a partition come in the order of their offsets, without repeats. Messages that the isolation level hides are
//     left out, and [Batch.Next] is the offset after them.
//   - A partition that nobody reads does not slow the others: its buffer is bounded, and it is left out of requests while the
//     buffer is full.
//   - The memory of all partitions is bounded by Options.MaxBytes; answers to requests in flight count in advance. There are two
//     exceptions, which count when the answer has come: a record batch that is larger than a partition's share is fetched
//     nevertheless (KIP-74), and a compressed answer grows when it is decompressed. Messages that were not compressed keep their
//     whole answer in memory. This takes half of MaxBytes more at most: above that, messages are copied.
//   - Leader changes, lost connections and brokers that are away are not errors. They are retried with a back-off of 2 s at most.
//   - A connection that is silent for 5 s while an answer is due is closed. A connection on which bytes arrive is not closed,
//     however slow it is. Where silence has ended a request, the broker gets twice as long for the next one, up to
//     Config.Net.ReadTimeout, so that a broker which reads from slow storage is read. A minute after its last slow answer it gets
//     5 s again. While it is silent for longer than 5 s, the leaders of the partitions are searched every 5 s, and a partition that
//     has moved is fetched from its new leader.
//   - After a change of leader the last batch is compared with the new leader's log (KIP-320). If the new leader has another
//     batch at that offset, or its log ends before, [Partition.Next] returns a [TruncatedError].
//   - A record batch that can't be decoded, or that makes an answer larger than sarama.MaxResponseSize, is an error of
//     [Partition.Next] after the messages before it. When the partition is opened at that batch again, the batch alone is asked for.
//   - Record batches that compaction has emptied are passed by a field that sarama does not export. With a sarama that has no such
//     field, an answer without records is an error of [Partition.Next].
//
// # Not guaranteed
//
//   - A truncation is not found if retention or compaction has removed the records that would show it, or if the records have no
//     leader epoch (message formats before 2).
//   - Close of a partition does not end a request that is in flight. Its answer is dropped.
package fetch
