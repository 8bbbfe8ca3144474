package consumer

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/status"
)

// Claim is implemented by the claims given to ConsumeClaim, beside sarama.ConsumerGroupClaim. Assert for it to distinguish
// revocation from loss, or to fence a store of your own.
//
//	if c, ok := claim.(consumer.Claim); ok { token = c.Token() }
//
// The assertion fails for a wrapper around a claim. There, [SessionOf] finds token and trust.
type Claim interface {
	sarama.ConsumerGroupClaim

	// InitialMetadata returns the text that is stored with InitialOffset, as [Partition.InitialMetadata] does.
	InitialMetadata() string

	// Token returns the fencing token: it grows with every change of the partition's owner. Give it to a store that can refuse an
	// older one.
	Token() int64

	// Trusted reports whether the partition surely is this member's at this moment. It costs nanoseconds; ask before each effect
	// on the outside.
	Trusted() bool

	// Context ends when the claim does. Its cause wraps ownership.ErrLost when the partition may be another member's already and
	// nothing can be committed any more. When a revocation has closed Messages and ended the Context of ConsumeClaim's session,
	// this Context goes on, so that the handler can finish; ConsumeClaim has RebalanceTimeout for that.
	Context() context.Context
}

// ownedClaim is the claim under which a partition is open; an *ownership.Claim.
type ownedClaim interface {
	offsets.Claim
	Topic() string
	Partition() int32
	Context() context.Context
	// Reason returns why the partition came to this member.
	Reason() status.Reason
	// Previous returns the owner before, or "" when that is not known.
	Previous() string
	// TrustedAt is Trusted, and also returns the time of the check by the session's clock.
	TrustedAt() (at time.Duration, trusted bool)
}

// claimChannel gives ConsumeClaim the messages of a partition in a channel.
type claimChannel struct {
	p    *Partition
	out  chan *sarama.ConsumerMessage
	full bool // the last message had to wait until the handler took one; only feed uses it

	mu      sync.Mutex
	batches []batchStart // the batches of which messages may be in the channel, and the newest one
}

// batchStart is the first message of a batch. It does not keep the batch in memory.
type batchStart struct {
	number int64     // number of messages before this one
	offset int64     // the message's offset
	at     time.Time // the message's timestamp
}

func newClaimChannel(p *Partition, size int) *claimChannel {
	c := &claimChannel{p: p, out: make(chan *sarama.ConsumerMessage, size)}
	p.channel.Store(c)
	return c
}

// feed moves messages into the channel until p's context ends. Then it empties and closes the channel. If reading has ended by
// itself, feed closes the channel first, and empties it when owned ends, so that the handler may take the remaining messages.
// returned is closed when the handler has returned. feed calls end, which ends the session's context, before it closes the
// channel: a handler that finds Messages closed finds that context ended.
func (c *claimChannel) feed(owned context.Context, returned <-chan struct{}, end func()) {
	for m := c.p.next(); m != nil && c.send(m); m = c.p.next() {
	}
	c.p.count()
	if !c.p.readingEnded {
		c.empty()
		end()
		close(c.out)
		return
	}
	end()
	close(c.out)
	select {
	case <-owned.Done():
		c.empty()
	case <-returned:
	}
}

// send puts m into the channel. It returns false if p's context ended before there was room. The time between two messages that
// both had to wait for room is the time between two receives, so it is sampled.
func (c *claimChannel) send(m *sarama.ConsumerMessage) bool {
	select {
	case c.out <- m:
		c.full = false
		return true
	default:
	}
	c.p.count() // before a wait that may be long
	select {
	case c.out <- m:
		if !c.full || c.p.sampler.waited {
			c.p.dropSample()
		}
		c.full, c.p.sampler.waited = true, false
		c.p.handled()
		return true
	case <-c.p.ctx.Done():
		return false
	}
}

// arrived stores the start of a batch that is about to enter the channel, and drops the batches that have left the channel.
func (c *claimChannel) arrived(b *cursor) {
	if len(b.messages) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batches = append(c.batches, batchStart{b.before, b.messages[0].Offset, b.messages[0].Timestamp})
	received, gone := b.before-int64(len(c.out)), 0
	for gone+1 < len(c.batches) && c.batches[gone+1].number <= received {
		gone++
	}
	c.batches = slices.Delete(c.batches, 0, gone)
}

// find returns the offset of the message with this number, and the timestamp of the first message of its batch. If the log has a
// gap between the two messages, the offset is too low.
func (c *claimChannel) find(number int64) (offset int64, at time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range slices.Backward(c.batches) {
		if b.number <= number {
			return b.offset + number - b.number, b.at, true
		}
	}
	return 0, time.Time{}, false
}

// empty drops the messages in the channel, unless the handler takes them first. It may take one behind those that are dropped: a mark of
// that does not count.
func (c *claimChannel) empty() {
	c.p.tracker.Withhold(func() (first int64, dropped bool) {
		for {
			select {
			case m, open := <-c.out:
				if !open {
					return first, dropped
				}
				if !dropped {
					first, dropped = m.Offset, true
				}
			default:
				return first, dropped
			}
		}
	})
}

// Topic returns the partition's topic.
func (c *claimChannel) Topic() string { return c.p.Topic() }

// Partition returns the partition's number.
func (c *claimChannel) Partition() int32 { return c.p.ID() }

// Token returns the fencing token.
func (c *claimChannel) Token() int64 { return c.p.Token() }

// Trusted reports whether the claim is trusted at this moment.
func (c *claimChannel) Trusted() bool { return c.p.Trusted() }

// Context returns the lifetime of the claim.
func (c *claimChannel) Context() context.Context { return c.p.Context() }

// InitialOffset returns the start position.
func (c *claimChannel) InitialOffset() int64 { return c.p.start }

// InitialMetadata returns the text that is stored with the start position.
func (c *claimChannel) InitialMetadata() string { return c.p.InitialMetadata() }

// HighWaterMarkOffset returns the offset of the next message that will be produced, according to the newest answer of a broker. It
// does not block, and has a broker asked as [Partition.HighWatermark] does.
func (c *claimChannel) HighWaterMarkOffset() int64 { return c.p.HighWatermark() }

// Messages returns the channel of messages. It is closed and empty when the partition is revoked or lost.
func (c *claimChannel) Messages() <-chan *sarama.ConsumerMessage { return c.out }

var _ Claim = (*claimChannel)(nil)
