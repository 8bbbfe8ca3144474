// Package handmade says what package consumer needs to call a handler with partitions that a test has made. Package consumertest
// makes them.
package handmade

import (
	"context"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/fetch"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/status"
)

// Part is one partition.
type Part struct {
	ID     kiel.Partition
	Claim  Claim
	Owned  context.Context //nolint:containedctx // the lifetime of the ownership: it ends with ownership.ErrRevoked or ownership.ErrLost
	Stream Stream
	Start  int64  // the offset of the first message
	Text   string // the text that is stored with Start

	// Opened is told how to ask for the position that is marked, before the handler is called.
	Opened func(marked func() (offset int64, text string))
	// Stored is told of each position that is committed.
	Stored func(offset int64, text string)
	// Late is told of each mark that had no effect.
	Late func(offset int64)
}

// Claim is the claim under which the partition is open.
type Claim interface {
	offsets.Claim
	Topic() string
	Partition() int32
	Context() context.Context
	Reason() status.Reason
	Previous() string
	TrustedAt() (at time.Duration, trusted bool)
}

// Stream has the partition's messages.
type Stream interface {
	Next(ctx context.Context) (fetch.Batch, error)
	Reposition(offset int64)
	AskEnd(ctx context.Context, wait time.Duration)
	Pause()
	Resume()
	Freshen(wait time.Duration)
	HighWatermark() int64
	End() int64
	Lag() (messages int64, behind time.Duration)
	FailingSince() time.Time
	Close()
}
