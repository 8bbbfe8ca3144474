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
//   - The memory of all partitions is bounded by Options.MaxBytes; record batches count as they came, and answers to requests in
//     flight count in advance. "Memory" below says what comes on top.
//   - Messages of one record batch share memory, which nobody writes to. A message that is kept keeps its record batch in memory.
//   - Leader changes, lost connections and brokers that are away are not errors. They are retried with a back-off of 2 s at most.
//   - A connection that is silent for 5 s while an answer is due is closed. A connection on which bytes arrive is not closed,
//     however slow it is. A broker that needs longer is read, if it answers within Config.Net.ReadTimeout.
//   - A partition that moves away from a silent broker is fetched from its new leader.
//   - After a change of leader the last batch is compared with the new leader's log (KIP-320). If the new leader has another
//     batch at that offset, or its log ends before, [Partition.Next] returns a [TruncatedError].
//   - A record batch that can't be read is an error of [Partition.Next] after the messages before it: one that is not as it
//     should be, that is larger than Options.MaxBatchBytes when it is decompressed, or that makes an answer larger than
//     sarama.MaxResponseSize. When the partition is opened at that batch again, the batch alone is asked for.
//   - Lengths, counts and checksums of brokers are not trusted: what is allocated for an answer has the order of its size.
//
// # Who reads what
//
// sarama writes the requests, authenticates, also again, and bounds the size of answers. A connection above TLS keeps the answers
// and gives sarama empty ones; this package reads them.
//
// # Not guaranteed
//
//   - A truncation is not found if retention or compaction has removed the records that would show it, or if the records have no
//     leader epoch (message formats before 2).
//   - Close of a partition does not end a request that is in flight. Its answer is dropped.
//
// # Memory
//
// A record batch that is larger than a partition's share is fetched nevertheless (KIP-74), and counts when it has come. On top of
// Options.MaxBytes come the messages that Next has handed out last: for each partition a record batch, decompressed to
// Options.MaxBatchBytes at most, and a quarter of a MiB for messages of it or of smaller ones. Each connection has memory for an
// answer, which it uses again: of the two connections of a broker each may have what was asked for of its partitions. All
// together have no more than MaxBytes, but for record batches that are larger than a share, and until a connection has had some
// answers, or was idle for a minute, after partitions have moved to another broker.
//
// # Slow brokers
//
// Where silence has ended a request, the broker gets twice as long for the next one, so that a broker which reads from slow
// storage is read. A minute after its last slow answer it gets 5 s again. While it is silent for longer than 5 s, the leaders of
// the partitions are searched every 5 s.
package fetch
