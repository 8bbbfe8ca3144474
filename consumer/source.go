package consumer

import (
	"context"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/fetch"
)

// fetcher opens partitions for reading.
type fetcher interface {
	// open starts to read p at offset. epoch is the leader epoch of the record batch before
	// offset, -1 when it is not known. The error is sarama.ErrOffsetOutOfRange when Kafka
	// does not have that offset, and a fetch.TruncatedError when it is found at once that
	// the log before offset is another one.
	open(ctx context.Context, p kiel.Partition, offset int64, epoch int32) (source, error)
	// end gives up everything at once and returns when nothing is left.
	end()
}

// source is one partition being read. Its methods may be called from any
// goroutine; only Next has one caller at a time.
type source interface {
	// Next blocks until there is a batch. Its error is ctx's cause, or why reading
	// can't go on.
	Next(ctx context.Context) (fetch.Batch, error)
	// Pause suspends fetching for the user, Resume ends that.
	Pause()
	Resume()
	// HighWatermark returns the offset after the last message that all replicas in sync
	// have, as the newest answer of a broker had it.
	HighWatermark() int64
	// End returns the offset after the last message that may be read, as the newest answer of
	// a broker had it; -1 before the first.
	End() int64
	// Lag returns how many offsets that may be read Next has not returned, and how old
	// the first of those messages is; 0 if there is none, or it has no timestamp.
	Lag() (messages int64, behind time.Duration)
	// FailingSince returns since when nothing can be fetched; zero when it can.
	FailingSince() time.Time
	// Close ends reading. It does not wait.
	Close()
}
