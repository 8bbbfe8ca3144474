// Package fetch reads partitions from Kafka's brokers. Readers pull: they ask for
// the next batch of messages when they have room for it.
//
// A [Fetcher] has an owner goroutine, [Fetcher.Run], which finds out who leads each
// partition. For each broker there are two connections with a goroutine each, and
// none for a partition. The first connection of a broker carries the long poll for
// all partitions with room; the second fetches what became ready while that poll is
// under way, in short polls, until the long poll returns.
//
// # Guarantees
//
//   - Batches of a partition come in the order of their offsets, without repeats. What
//     the isolation level hides is left out, and [Batch.Next] goes past it.
//   - A partition that nobody reads from costs the others nothing: its buffer is bounded,
//     and it is left out of requests while that is full.
//   - What all partitions hold, with what requests in flight may bring, is bounded by
//     Options.MaxBytes. A record batch that is larger than a partition's share is fetched
//     nevertheless, and counts once it has come. So does what a compressed answer grows to.
//     Messages that were not compressed keep the answer alive that they came in. What this
//     takes beside the messages is bounded by half of MaxBytes more: then they are copied.
//   - Leader changes, lost connections and brokers that are away are not errors. They are
//     retried with a back-off of 2 s at most.
//   - A connection that is silent for 5 s while an answer is due is closed. One on which
//     bytes arrive is not, however slow it is.
//   - After a change of leader the last batch is compared with the new leader's. If that
//     has another one there, or its log ends before, [Partition.Next] returns a
//     [TruncatedError].
//
// # Not guaranteed
//
//   - A truncation is not seen if retention or compaction has removed the records that it
//     would show in, or if the records have no leader epoch (message formats before 2).
//   - Close of a partition does not end a request that is in flight. Its answer is dropped.
package fetch
