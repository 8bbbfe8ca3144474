package consumer

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
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
	sent atomic.Int64 // number of messages that were put into the channel
	next int64        // the offset after the last of them, or that at which the partition starts; only feed uses it

	mu       sync.Mutex
	batches  []batchStart // the batches of which messages may be in the channel, and the newest one
	end      batchStart   // behind the newest batch
	received counts       // what the handler has received, as far as the metrics have it
	over     bool         // the handler receives no more
}

// batchStart is the first message of a batch. It does not keep the batch in memory.
type batchStart struct {
	number int64     // number of messages before this one
	bytes  int       // in their keys and values
	offset int64     // the message's offset
	at     time.Time // the message's timestamp
}

func newClaimChannel(p *Partition, size int) *claimChannel {
	c := &claimChannel{p: p, out: make(chan *sarama.ConsumerMessage, size), next: p.start}
	p.handler.channel.Store(c)
	if p.metrics.handling != nil {
		p.tracker.TimeMarks(sampleEvery, p.metrics.handling.Observe)
	}
	return c
}

// feed moves messages into the channel until p's context ends. Then it empties and closes the channel. If reading has ended by
// itself, feed closes the channel first, and empties it when owned ends, so that the handler may take the remaining messages.
// returned is closed when the handler has returned. feed calls end, which ends the session's context, before it closes the
// channel: a handler that finds Messages closed finds that context ended.
func (c *claimChannel) feed(owned context.Context, returned <-chan struct{}, end func()) {
	for m := c.p.next(); m != nil && c.send(m); m = c.p.next() {
	}
	if !c.p.reading.ended {
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
		c.countLast(c.sent.Load() - int64(len(c.out)))
	}
}

// send puts m into the channel. It returns false if p's context ended before there was room.
func (c *claimChannel) send(m *sarama.ConsumerMessage) bool {
	if len(c.out) == 0 {
		c.p.tracker.Arrives(c.next)
	}
	select {
	case c.out <- m:
	default:
		select {
		case c.out <- m:
		case <-c.p.ctx.Done():
			return false
		}
	}
	c.sent.Add(1)
	c.next = m.Offset + 1
	return true
}

// arrived stores the start of a batch that is about to enter the channel, and drops the batches that have left the channel.
func (c *claimChannel) arrived(b *cursor) {
	if len(b.messages) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	start := batchStart{number: b.before, bytes: c.end.bytes, offset: b.messages[0].Offset, at: b.messages[0].Timestamp}
	size := counts{}
	for i := range b.messages {
		size.add(&b.messages[i])
	}
	c.batches = append(c.batches, start)
	c.end = batchStart{number: b.before + int64(len(b.messages)), bytes: start.bytes + size.bytes}
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

// count adds to the metrics what the handler has received since the last call.
func (c *claimChannel) count() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		sent := c.sent.Load() // first: what is sent meanwhile is not counted
		c.countTo(sent - int64(len(c.out)))
	}
}

// countLast is count when the handler receives no more. number is how many messages it has received.
func (c *claimChannel) countLast(number int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.countTo(number)
}

// countTo adds the messages before the one with this number to the metrics. c.mu is held.
func (c *claimChannel) countTo(number int64) {
	now := counts{int(number), c.bytesBefore(number)}
	if now.messages <= c.received.messages {
		return
	}
	c.p.metrics.messages.Add(float64(now.messages - c.received.messages))
	c.p.metrics.bytes.Add(float64(max(now.bytes-c.received.bytes, 0)))
	c.received = counts{now.messages, max(now.bytes, c.received.bytes)}
}

// bytesBefore returns how many bytes are in the keys and values of the messages before the one with this number. Within a batch
// it takes them for equally large. c.mu is held.
func (c *claimChannel) bytesBefore(number int64) int {
	next := c.end
	for _, b := range slices.Backward(c.batches) {
		if b.number <= number && b.number < next.number {
			return b.bytes + int(float64(next.bytes-b.bytes)*float64(number-b.number)/float64(next.number-b.number))
		}
		next = b
	}
	return 0
}

// empty drops the messages in the channel, unless the handler takes them first. It may take one behind those that are dropped: a
// mark of that does not count.
func (c *claimChannel) empty() {
	c.mu.Lock()
	c.over = true // what is dropped has not been received
	c.mu.Unlock()
	dropped := int64(0)
	c.p.tracker.Withhold(func() (first int64, found bool) {
		for {
			select {
			case m, open := <-c.out:
				if !open {
					return first, dropped > 0
				}
				if dropped++; dropped == 1 {
					first = m.Offset
				}
			default:
				return first, dropped > 0
			}
		}
	})
	c.countLast(c.sent.Load() - dropped)
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

// HighWaterMarkOffset returns the offset after the last message that all in-sync replicas have, according to the newest answer of
// a broker. It does not block, and has a broker asked as [Partition.HighWatermark] does.
func (c *claimChannel) HighWaterMarkOffset() int64 { return c.p.HighWatermark() }

// Messages returns the channel of messages. It is closed and empty when the partition is revoked or lost.
func (c *claimChannel) Messages() <-chan *sarama.ConsumerMessage { return c.out }

var _ Claim = (*claimChannel)(nil)
