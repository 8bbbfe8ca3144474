package consumer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"sort"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/fetch"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/usercall"
	"github.com/kielgo/kiel/ownership"
)

// errUntrusted is the cause with which a handler's context ends when trust in the claim has ended.
var errUntrusted = failure("", "", operr.Mark(errors.New("the claim is not trusted any more"), ownership.ErrLost))

// Partition is an open partition, for the handler given to [Group.Run]. Messages, Batches, Poll and Seek are for one goroutine at
// a time, which need not be the handler's own; the other methods may be called from any goroutine, also after the handler has
// returned. A partition that is closed and opened again is another Partition. Package consumertest makes them for tests of
// handlers.
type Partition struct {
	ctx       context.Context         //nolint:containedctx // the handler's context
	end       context.CancelCauseFunc // ends ctx
	id        kiel.Partition
	claim     ownedClaim
	stream    stream
	start     int64  // the offset of the first message
	text      string // the text that is stored with start
	tracker   *offsets.Tracker
	committer *offsets.Committer
	pauses    *pauses
	log       *errlog.Log
	countLate func(p kiel.Partition, offset int64) // counts a mark that has no effect, because p is closed

	// announce, when not nil, calls the interceptors and the Observer with a message that is about to be handed out. It returns
	// false if ctx ended before they returned.
	announce  func(*sarama.ConsumerMessage) bool
	notifying atomic.Pointer[usercall.Call] // the Observer's call for the newest message

	openedAt    time.Time     // when reading started
	openTook    time.Duration // time from the claim, or from the end of the last opening, to openedAt
	keepsItself bool          // the program stores offsets itself, as Fence or an offset that Setup has set shows

	cursor  atomic.Pointer[cursor]
	metrics partitionMetrics
	handler handlerWatch
	reading reading
}

// handlerWatch is what shows others whether a handler takes messages.
type handlerWatch struct {
	firstAt  atomic.Pointer[time.Time]    // when the first message was handed out; nil before
	waits    atomic.Bool                  // the goroutine that reads waits for a batch
	channel  atomic.Pointer[claimChannel] // the claim whose channel has messages that were handed out; nil with Run
	stalling stalling
}

// reading belongs to the goroutine that reads.
type reading struct {
	trustedAt time.Duration // when the claim was last found trusted, by the session's clock
	sampler   sampler
	resumed   <-chan struct{} // closed at the end of the pause in which the partition was opened; nil without such a pause, or when it is over
	handed    counts          // handed out and not yet added to the metrics
	ended     bool            // the stream has ended, and the context of the partition had not
	again     bool            // Seek has gone back, and the partition is not where it was
	heldBack  bool            // the log has said that the full window holds messages back
}

// cursor is a batch of messages, and how many of them were handed out.
type cursor struct {
	messages []sarama.ConsumerMessage
	next     int64        // the position after the batch
	before   int64        // number of messages in the batches before
	done     atomic.Int64 // number of messages that were handed out
}

// counts is a number of messages, and of the bytes in their keys and values.
type counts struct{ messages, bytes int }

func (c *counts) add(m *sarama.ConsumerMessage) {
	c.messages++
	c.bytes += len(m.Key) + len(m.Value)
}

// partitionMetrics are the metrics of a partition's topic.
type partitionMetrics struct {
	messages, bytes prometheus.Counter
	heldBack        prometheus.Gauge
	handling, delay prometheus.Observer // nil when the metrics are not registered
}

// heldBackLimit is how long a full window may hold messages back before a warning is logged.
const heldBackLimit = 30 * time.Second

// countEvery is how many messages of a batch may be handed out before they are added to the metrics.
const countEvery = 64

// Topic returns the partition's topic.
func (p *Partition) Topic() string { return p.id.Topic }

// ID returns the partition's number in its topic.
func (p *Partition) ID() int32 { return p.id.ID }

// InitialMetadata returns the text that is stored with the offset at which the partition starts: that of the mark with which an
// owner before, of whatever process, has committed it, or what another program has stored with it. "" says that there is none, as
// where a policy or a reset has chosen the start. If a mark or a reset in Setup has, it is the text that was given there. A text
// is what somebody has stored: check it before you rely on it. It does not change while the partition is open.
func (p *Partition) InitialMetadata() string { return p.text }

// Token returns the fencing token: it grows with every change of the partition's owner. Give it to a store that can refuse an
// older one.
func (p *Partition) Token() int64 { return p.claim.Token() }

// Trusted reports whether the partition surely is this member's at this moment. It reads the clock and costs nanoseconds: ask
// before each effect on the outside. After a revocation it stays true until the handler has returned, unless the partition is
// lost meanwhile.
func (p *Partition) Trusted() bool { return p.claim.Trusted() }

// Context returns the lifetime of the claim. It outlives the handler's context after a revocation, so that the handler can finish
// its current message. Its cause wraps ownership.ErrLost when the partition may be another member's.
func (p *Partition) Context() context.Context { return p.claim.Context() }

// Messages returns the messages one after the other, in the order of their offsets. It waits for more messages; the loop ends
// when the handler's context does. Right before each message the claim is checked, by the clock: no message is handed out if the
// claim is not trusted at that moment. A second loop begins after the last message of the first. The messages of a record batch
// share memory: a handler that keeps one of them keeps all in memory. A handler may append to a message's key, value and headers.
func (p *Partition) Messages() iter.Seq[*sarama.ConsumerMessage] {
	return func(yield func(*sarama.ConsumerMessage) bool) {
		defer p.count()
		for m := p.next(); m != nil; m = p.next() {
			more := yield(m)
			if p.handled(); !more {
				break
			}
		}
	}
}

// Batches is Messages by batch. A batch has the messages of a few record batches, or of a part of a large one: some hundred KB at
// most, or a single message. The claim is checked once for each batch, right before the batch is handed out. No batch is empty.
// The handler must not write to the slice's elements, and may append to the slice.
func (p *Partition) Batches() iter.Seq[[]sarama.ConsumerMessage] {
	return func(yield func([]sarama.ConsumerMessage) bool) {
		defer p.count()
		for b := p.nextBatch(p.ctx, math.MaxInt); b != nil; b = p.nextBatch(p.ctx, math.MaxInt) {
			more := yield(b)
			if p.handled(); !more {
				break
			}
		}
	}
}

// next returns the next message, or nil when reading has ended. It checks the claim last, after all steps that may take time.
func (p *Partition) next() *sarama.ConsumerMessage {
	c, done := p.current(p.ctx)
	if c == nil {
		return nil
	}
	m := &c.messages[done]
	if !p.awaitRoom(p.ctx, m.Offset) {
		return nil
	}
	if p.announce != nil && !p.announce(m) {
		return nil
	}
	if !p.mayHandOut() {
		return nil
	}
	c.done.Store(done + 1)
	if p.handler.channel.Load() != nil {
		// The channel counts what the handler receives.
	} else if p.reading.handed.add(m); p.reading.handed.messages >= countEvery {
		p.count()
	}
	if p.reading.again {
		p.reread(m.Offset + 1)
	}
	p.sample(m)
	return m
}

// nextBatch returns the rest of the current batch, or the next batch, but for what is behind its first most messages. It returns
// nil when ctx ends first, which is p's context or ends with it.
func (p *Partition) nextBatch(ctx context.Context, most int) []sarama.ConsumerMessage {
	c, done := p.current(ctx)
	if c == nil {
		return nil
	}
	rest := c.messages[done:]
	rest = rest[:min(most, len(rest))]
	if !p.awaitRoom(ctx, rest[0].Offset) {
		return nil
	}
	if p.tracker.Room(rest[len(rest)-1].Offset) != nil {
		rest = rest[:max(1, sort.Search(len(rest), func(i int) bool { return p.tracker.Room(rest[i].Offset) != nil }))]
	}
	rest = slices.Clip(rest) // a handler that appends must not write over the messages behind
	for i := range rest {
		if p.announce != nil && !p.announce(&rest[i]) {
			return nil
		}
	}
	if !p.mayHandOut() {
		return nil
	}
	c.done.Store(done + int64(len(rest)))
	for i := range rest {
		p.reading.handed.add(&rest[i])
	}
	p.count()
	if p.reading.again {
		p.reread(rest[len(rest)-1].Offset + 1)
	}
	p.sample(&rest[0])
	return rest
}

// current returns the batch that is being handed out, and how many of its messages were handed out. It returns nil when reading
// has ended, or ctx has.
func (p *Partition) current(ctx context.Context) (*cursor, int64) {
	for {
		if c := p.cursor.Load(); c != nil {
			if done := c.done.Load(); done < int64(len(c.messages)) {
				return c, done
			}
		}
		if !p.fill(ctx) {
			return nil, 0
		}
	}
}

// fill waits for the next batch. It returns false when reading has ended, or ctx has.
func (p *Partition) fill(ctx context.Context) bool {
	p.count()
	p.handler.waits.Store(true)
	if p.reading.resumed != nil {
		if !kafkaconn.Await(ctx, p.reading.resumed) && p.ctx.Err() == nil {
			return false
		}
		p.reading.resumed = nil
	}
	b, err := p.stream.Next(ctx)
	if err != nil && p.ctx.Err() == nil && ctx.Err() != nil {
		return false // the caller of Poll waits no longer
	}
	if err != nil {
		p.reading.ended = p.ctx.Err() == nil
		p.end(err) // no effect if p's context has ended
		return false
	}
	if len(b.Messages) > 0 {
		p.tracker.AwaitPassed(p.ctx)
	}
	p.tracker.SetLeaderEpoch(b.LeaderEpochFrom, b.LeaderEpoch)
	p.tracker.Delivered(b.Messages, b.Next)
	p.arrived(&cursor{messages: b.Messages, next: b.Next})
	p.handler.waits.Store(false)
	return true
}

// arrived makes c the current batch.
func (p *Partition) arrived(c *cursor) {
	if last := p.cursor.Load(); last != nil {
		c.before = last.before + int64(len(last.messages))
	}
	if to := p.handler.channel.Load(); to != nil {
		to.arrived(c)
	}
	p.cursor.Store(c)
}

// awaitRoom waits until the window has room for the message at offset. It returns false if ctx ended first, which is p's context
// or ends with it.
func (p *Partition) awaitRoom(ctx context.Context, offset int64) bool {
	room := p.tracker.Room(offset)
	if room != nil {
		p.count()
	}
	for ; room != nil; room = p.tracker.Room(offset) {
		timer := time.NewTimer(p.untilHeldBack())
		select {
		case <-room:
		case <-timer.C:
			p.warnHeldBack()
		case <-ctx.Done():
			timer.Stop()
			if p.ctx.Err() != nil { // else a Poll alone ends
				p.relieve()
			}
			return false
		}
		timer.Stop()
	}
	if p.reading.heldBack {
		p.relieve()
	}
	return true
}

// untilHeldBack returns after how long a full window is to be warned of. It looks again and again: the window moves.
func (p *Partition) untilHeldBack() time.Duration {
	_, since, held := p.tracker.HeldBack()
	if !held || p.reading.heldBack {
		return heldBackLimit
	}
	return heldBackLimit - time.Since(since)
}

// warnHeldBack warns that the window has been full for heldBackLimit.
func (p *Partition) warnHeldBack() {
	oldest, since, held := p.tracker.HeldBack()
	if !held || p.reading.heldBack || time.Since(since) < heldBackLimit {
		return
	}
	p.reading.heldBack = true
	p.metrics.heldBack.Inc()
	err := failure("", "", fmt.Errorf("messages are held back: the one at %d is not marked", oldest))
	p.log.FailedWarn(reporting.KindHeldBack, p.id.String(), err, "since", since)
}

// relieve ends what warnHeldBack has begun.
func (p *Partition) relieve() {
	if p.reading.heldBack {
		p.reading.heldBack = false
		p.metrics.heldBack.Dec()
		p.log.OK(reporting.KindHeldBack, p.id.String())
	}
}

// mayHandOut reports whether messages may be handed out now: the claim is trusted, and p's context has not ended.
func (p *Partition) mayHandOut() bool {
	if p.ctx.Err() != nil {
		return false
	}
	at, trusted := p.claim.TrustedAt()
	if !trusted {
		p.end(errUntrusted)
		return false
	}
	p.reading.trustedAt = at
	return true
}

// handlerReturned ends p's context because the handler has returned. If the partition has ended before, the cause is that of the
// partition's end, even if that end has not reached p's context yet. owned ends when the partition is revoked, or is to be
// closed.
func (p *Partition) handlerReturned(owned context.Context) {
	switch {
	case p.claim.Context().Err() != nil:
		p.end(context.Cause(p.claim.Context()))
	case owned.Err() != nil:
		p.end(context.Cause(owned))
	case !p.claim.Trusted():
		p.end(errUntrusted)
	default:
		p.end(errHandlerReturned)
	}
}

// count adds the messages that were handed out to the metrics.
func (p *Partition) count() {
	if p.reading.handed.messages == 0 {
		return
	}
	p.metrics.messages.Add(float64(p.reading.handed.messages))
	p.metrics.bytes.Add(float64(p.reading.handed.bytes))
	p.reading.handed = counts{}
}

// Mark marks m and all messages before it. The mark is committed within Options.CommitInterval, and at once when the partition is
// closed. A mark below an earlier one has no effect, nor has a mark after the partition was closed. Mark does not block. It
// panics if m is of another partition.
func (p *Partition) Mark(m *sarama.ConsumerMessage) {
	p.mustOwn(m)
	if !p.tracker.Mark(m.Offset+1, "") {
		p.countLate(p.id, m.Offset)
	}
}

// Done marks m alone, for handlers that work on several messages of the partition at a time and finish them in any order. The
// committed position is the offset of the oldest message that is neither marked nor done. Mark still marks all messages before
// its own.
//
// From the first call of Done on, Options.MaxUnmarked bounds how many messages may be handed out from the oldest unmarked one on.
// When the window is full, the loop over Messages waits. If the oldest unmarked message does not change for 30 s meanwhile, a
// warning names it.
//
// Done does not block, may be called from any goroutine, and panics if m is of another partition. A handler must wait for its own
// work before it returns: a Done after the return is not committed. Before the first Done a handler may take 16 million messages,
// or messages from 65,536 gaps of the log. Then the loop waits, and nothing is committed, until the handler calls Mark for the
// last of them.
func (p *Partition) Done(m *sarama.ConsumerMessage) {
	p.mustOwn(m)
	if !p.tracker.Done(m.Offset) {
		p.countLate(p.id, m.Offset)
	}
}

// mustOwn panics if m is of another partition, because m's offset means nothing in this one.
func (p *Partition) mustOwn(m *sarama.ConsumerMessage) {
	if m.Partition != p.id.ID || m.Topic != p.id.Topic {
		panic(fmt.Sprintf("consumer: message of %q:%d marked in %s", m.Topic, m.Partition, p.id))
	}
}

// Commit stores the marked position, and returns when it is stored or refused, or when ctx ends. It returns nil at once if all
// marks are stored. A refusal goes to Errors, too. When the claim has ended, Commit returns an ownership.ErrLost, which does not
// go to Errors.
func (p *Partition) Commit(ctx context.Context) error {
	if _, _, dirty := p.tracker.Marked(); !dirty {
		return nil
	}
	err := p.committer.Commit(ctx, p.tracker)
	if errors.Is(err, offsets.ErrLost) {
		return errUntrusted
	}
	return err
}

// endWait is how long [Partition.Lag], a scrape and [Group.Status] wait for the ends of partitions that are not fetched.
const endWait = 500 * time.Millisecond

// HighWatermark returns the offset after the last message that all in-sync replicas have, according to the newest answer of a
// broker. With ReadCommitted, messages before that offset may not be readable yet. HighWatermark does not block. If that answer
// is older than 5 s, because the partition is paused or its buffer is full, HighWatermark has a broker asked, and a later call
// returns the answer; see Lag.
func (p *Partition) HighWatermark() int64 {
	return p.stream.HighWatermark()
}

// Lag returns the number of offsets from the next message that the handler gets to the end of the readable messages, and the age
// of that next message. The age is 0 when there is no such message, when it has no timestamp, or when the broker has not sent it
// yet. With sarama.ReadCommitted the readable messages end at the first undecided transaction (KIP-98).
//
// While the partition is fetched, Lag costs no request and does not block. If the newest answer of a broker is older than 5 s,
// because the partition is paused or its buffer is full, Lag asks for the end, of all such partitions of the Group at once, and
// waits for half a second at most. While Kafka does not answer, the lag is that to the last known end, and Lag waits once in 5 s.
func (p *Partition) Lag() (messages int64, behind time.Duration) {
	p.stream.Freshen(endWait)
	return p.lag()
}

// lag is Lag by what is known, without a request.
func (p *Partition) lag() (messages int64, behind time.Duration) {
	messages, behind = p.stream.Lag()
	if c := p.cursor.Load(); c != nil {
		if at, when, waits := p.upcoming(c); waits {
			return messages + c.next - at, fetch.Age(when)
		}
	}
	return messages, behind
}

// Pause suspends fetching, as [Group.Pause] does. Messages fetched before are still handed out. The pause outlasts the
// partition's closing. When the partition is opened again, no message is handed out before Resume, of this Partition or of the
// new one.
func (p *Partition) Pause() { p.pauses.set(p.id, true) }

// Resume ends the pause.
func (p *Partition) Resume() { p.pauses.set(p.id, false) }
