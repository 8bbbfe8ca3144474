package consumer

import (
	"context"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/fetch"
)

// fetcher opens partitions for reading.
type fetcher interface {
	// open starts to read p at offset. leaderEpoch is the leader epoch of the record batch before offset, -1 when it is not
	// known. The error is sarama.ErrOffsetOutOfRange when Kafka does not have that offset, and a fetch.TruncatedError when the
	// first answer shows that the log before offset was truncated.
	open(ctx context.Context, p kiel.Partition, offset int64, leaderEpoch int32) (stream, error)
	// prepare connects to the leaders of partitions that are to be opened soon, as far as they are known. It does not block.
	prepare(ps []kiel.Partition)
	// ends returns the offsets after the last readable messages of partitions, by one request to each of their
	// leaders. Partitions for which there is no answer are missing.
	ends(ctx context.Context, ps []kiel.Partition) map[kiel.Partition]int64
	// end closes all partitions and connections, and returns when they are closed.
	end()
}

// stream is one partition that is being read. Its methods may be called from any goroutine, but Next by one goroutine at a time.
type stream interface {
	// Next blocks until there is a batch. Its error is ctx's cause, or the reason why reading can't go on.
	Next(ctx context.Context) (fetch.Batch, error)
	// Reposition has the next batch begin at offset, and drops the others. It does not wait.
	Reposition(offset int64)
	// AskEnd has the end read. It waits for wait at most.
	AskEnd(ctx context.Context, wait time.Duration)
	// Pause suspends fetching.
	Pause()
	// Resume ends the pause.
	Resume()
	// Freshen has Kafka asked for the end if the partition was not fetched lately, and waits for the answer for wait at most.
	Freshen(wait time.Duration)
	// HighWatermark returns the offset after the last message that all in-sync replicas have, according to the newest answer of a
	// broker. It has Kafka asked as Freshen does, and does not block.
	HighWatermark() int64
	// End returns the offset after the last readable message, according to the newest answer of a broker; -1 before the first
	// answer.
	End() int64
	// Lag returns the number of readable offsets that Next has not returned, and the age of the first of those messages. The age
	// is 0 if there is no such message, or if it has no timestamp.
	Lag() (messages int64, behind time.Duration)
	// FailingSince returns since when the partition can't be fetched; zero when it can.
	FailingSince() time.Time
	// Close ends reading. It does not wait.
	Close()
}
