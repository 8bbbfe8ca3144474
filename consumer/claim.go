package consumer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer/internal/offsets"
)

// Claim is what the claims given to ConsumeClaim are, beside
// sarama.ConsumerGroupClaim: assert for it to tell revocation from loss, or to
// fence a store of your own.
//
//	if c, ok := claim.(consumer.Claim); ok { token = c.Token() }
type Claim interface {
	sarama.ConsumerGroupClaim

	// Token returns the fencing token: it grows with every change of the
	// partition's owner. Give it to a store that can refuse an older one.
	Token() int64

	// Trusted says whether the partition surely is this member's at this
	// moment. It costs nanoseconds; ask before each effect on the outside.
	Trusted() bool

	// Context ends when the claim does. Its cause wraps ownership.ErrLost when
	// the partition may be another's already and nothing of it can be
	// committed. It lives on after Messages was closed by a revocation, for the
	// handler to finish; ConsumeClaim has RebalanceTimeout for that.
	Context() context.Context
}

// holder is the claim under which a partition is open; an *ownership.Claim.
type holder interface {
	offsets.Claim
	Topic() string
	Partition() int32
	Context() context.Context
}

// claim is one opening of one partition.
type claim struct {
	holder
	initial int64
	out     chan *sarama.ConsumerMessage
	gate    *gate

	offered atomic.Int64  // the offset after the message that is handed out next, or was last
	told    atomic.Int64  // the offset after the last message that the observer knows of
	back    chan struct{} // holds a hint that the handler may wait for a message
}

func newClaim(h holder, s stream, initial int64) *claim {
	return &claim{
		holder: h, initial: initial, out: make(chan *sarama.ConsumerMessage), gate: &gate{stream: s}, back: make(chan struct{}, 1),
	}
}

// hint says that the handler may be about to wait for a message: it has marked
// one, or asks for the channel. Any goroutine may call it; a wrong hint costs a look.
func (c *claim) hint() {
	select {
	case c.back <- struct{}{}:
	default:
	}
}

// forget drops the hints that were given so far.
func (c *claim) forget() {
	select {
	case <-c.back:
	default:
	}
}

// patienceWithObserver bounds waitTold.
const patienceWithObserver = time.Second

// waitTold waits until the observer knows of the messages before offset, if they
// were handed out: a handler may mark one before the pump, which has handed it
// out, comes to say so.
func (c *claim) waitTold(offset int64) {
	for end := time.Now().Add(patienceWithObserver); c.told.Load() < offset && offset <= c.offered.Load(); {
		if time.Now().After(end) {
			return // marked without having been taken
		}
		<-time.After(50 * time.Microsecond)
	}
}

// InitialOffset returns the offset of the first message asked for.
func (c *claim) InitialOffset() int64 { return c.initial }

// HighWaterMarkOffset returns the offset of the next message that will be
// produced, as the newest answer with messages had it.
func (c *claim) HighWaterMarkOffset() int64 { return c.gate.stream.HighWaterMarkOffset() }

// Messages returns the messages. It is closed when the partition is revoked or
// lost. It holds no message back: what was not received is not handed out.
func (c *claim) Messages() <-chan *sarama.ConsumerMessage {
	c.hint() // a select in a loop asks each time
	return c.out
}

var _ Claim = (*claim)(nil)

// gate pauses a stream while the user wants it to, or the queue behind it is
// full.
type gate struct {
	stream stream

	mu         sync.Mutex
	user, full bool
}

func (g *gate) set(change func(g *gate)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.user || g.full
	change(g)
	switch after := g.user || g.full; {
	case after && !before:
		g.stream.Pause()
	case before && !after:
		g.stream.Resume()
	}
}

func (g *gate) setUser(paused bool) { g.set(func(g *gate) { g.user = paused }) }
func (g *gate) setFull(full bool)   { g.set(func(g *gate) { g.full = full }) }
