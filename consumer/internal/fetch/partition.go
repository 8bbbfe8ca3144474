package fetch

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// Partition is one partition being read. Its methods may be called concurrently,
// but Next by one goroutine at a time.
type Partition struct {
	of    *Fetcher
	topic string
	id    int32
	ready chan struct{} // holds a token when Next may have something to return
	done  chan struct{} // closed by Close
	found chan struct{} // closed when Kafka has accepted the position, or refused it

	// The fields below are guarded by of.mu.

	turn     int   // raised whenever what is in flight must not count any more
	position int64 // the offset to fetch next
	epoch    int32 // the leader epoch of the batch before position, -1 when it is not known
	err      error // why reading can't go on
	closed   bool

	queue       []Batch
	buffered    int   // bytes of queue
	inHand      int   // bytes of the batch that Next returned last
	hand        Batch // that batch, without its messages
	handed      int64 // the position after that batch
	handedEpoch int32 // its leader epoch
	paused      bool

	end, stable, start int64 // high watermark, last stable offset and log start; -1 before the first answer

	node        *node // nil while it is looked for
	leaderEpoch int32
	flying      *link // the connection with a request in flight for it
	follower    int32 // the id of the follower to fetch from; -1 for the leader
	lease       time.Time

	looking bool // a look for the leader is under way
	refresh bool // metadata must be asked for first
	outside bool // the leader has answered that position is out of range
	due     time.Time
	backoff time.Duration
	failing time.Time // since when it fails; zero when it does not
	failure error     // the newest
	settled bool      // found is closed

	size      int     // bytes to ask for when a record batch is larger than the normal size; 0 for that
	expansion float64 // bytes in memory for a byte on the wire
	alone     bool    // to be fetched in a request of its own
	quiet     bool    // the last answer had nothing
	check     *check  // not nil while the position is compared with the new leader's log

	watched watched
}

// watched is what the watchdog remembers of a partition.
type watched struct {
	position int64
	since    time.Time // when it was first seen standing still there; zero when it was not
	reset    time.Time
}

// Opened waits until Kafka has accepted the position, and returns what Next would if
// it does not. It gives up after 10 s without an answer, but not while the first answer is
// on its way; the partition is still looked for then, until the caller closes it.
func (p *Partition) Opened(ctx context.Context) error {
	tick := time.NewTicker(patience)
	defer tick.Stop()
	for waiting := true; waiting; {
		select {
		case <-p.found:
			waiting = false
		case <-p.done:
			waiting = false
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			waiting = p.answerComes()
		}
	}
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	switch {
	case p.closed:
		return ErrClosed
	case p.err != nil || p.end >= 0:
		return p.err
	case p.failure != nil:
		return fmt.Errorf("%w: %w", ErrNoAnswer, p.failure)
	default:
		return ErrNoAnswer
	}
}

// answerComes reports whether the first request for the partition is in flight. Its connection ends when it brings
// no byte; while bytes come, asking again would only begin the same answer anew.
func (p *Partition) answerComes() bool {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	return p.flying != nil && p.end < 0 && p.failure == nil
}

// Next returns the next batch. It blocks until there is one, and returns ctx's cause
// when ctx ends first. Other errors say why reading can't go on, and stay: a
// [RangeError] or a [TruncatedError], Kafka's refusal, or [ErrClosed]. The memory of
// the batch before counts as free from then on.
func (p *Partition) Next(ctx context.Context) (Batch, error) {
	for {
		if b, ok, err := p.take(); ok || err != nil {
			return b, err
		}
		select {
		case <-p.ready:
		case <-p.done:
		case <-ctx.Done():
			return Batch{}, context.Cause(ctx)
		}
	}
}

// take returns the first batch of the queue.
func (p *Partition) take() (Batch, bool, error) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	defer func() {
		// Not only when there was none before: other partitions that open or close change the share.
		if p.flying == nil && p.hasRoom() {
			p.wakeNode()
		}
	}()
	p.of.release(&p.hand)
	p.inHand, p.hand = 0, Batch{}
	switch {
	case p.closed:
		return Batch{}, false, ErrClosed
	case len(p.queue) == 0:
		return Batch{}, false, p.err
	}
	b := p.queue[0]
	p.queue[0] = Batch{}
	if p.queue = p.queue[1:]; len(p.queue) == 0 {
		p.queue = nil
	}
	p.buffered -= b.size
	p.inHand, p.hand, p.handed, p.handedEpoch = b.size, Batch{data: b.data, answer: b.answer}, b.Next, b.LeaderEpoch
	return b, true, nil
}

// Pause stops fetching. What is buffered is still returned by Next.
func (p *Partition) Pause() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.paused = true
}

// Resume goes on fetching.
func (p *Partition) Resume() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.paused = false
	p.wakeNode()
}

// String returns the partition's name.
func (p *Partition) String() string { return p.topic + ":" + strconv.Itoa(int(p.id)) }

// HighWatermark returns the offset after the last message that all replicas in sync
// have, as the last answer said. It is -1 before the first answer.
func (p *Partition) HighWatermark() int64 { return p.read(func() int64 { return p.end }) }

// LastStable returns the offset of the first message of a transaction that is not
// decided, or the high watermark if there is none. It is -1 before the first answer.
func (p *Partition) LastStable() int64 { return p.read(func() int64 { return p.stable }) }

// LogStart returns the offset of the first message that Kafka has. It is -1 before
// the first answer.
func (p *Partition) LogStart() int64 { return p.read(func() int64 { return p.start }) }

func (p *Partition) read(f func() int64) int64 {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	return f()
}

// Lag returns how many offsets there are from the end of the batch that Next returned
// last to the end of what may be read, and the age of the next message. The age is
// zero when that message has not been fetched or has no timestamp.
func (p *Partition) Lag() (messages int64, behind time.Duration) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	messages = max(p.readable()-p.handed, 0)
	for _, b := range p.queue {
		if len(b.Messages) > 0 {
			return messages, Age(b.Messages[0].Timestamp)
		}
	}
	return messages, 0
}

// End returns the offset after the last message that may be read, as the last answer said. It is -1 before the first answer.
func (p *Partition) End() int64 { return p.read(p.readable) }

// FailingSince returns since when the partition can't be fetched; zero when it can, or is not to be: it is paused, or what was fetched waits.
func (p *Partition) FailingSince() time.Time {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.paused || !p.hasRoom() {
		return time.Time{}
	}
	return p.failing
}

// readable returns the offset after the last message that may be read now.
func (p *Partition) readable() int64 { return p.of.settings.readable(p.end, p.stable) }

// Close gives the partition up, with what is buffered. It does not wait for what is
// in flight. The partition may be opened again at once.
func (p *Partition) Close() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.close()
}

func (p *Partition) close() {
	if p.closed {
		return
	}
	p.closed = true
	p.detach()
	for i := range p.queue {
		p.of.release(&p.queue[i])
	}
	p.of.release(&p.hand)
	p.queue, p.buffered, p.inHand, p.hand = nil, 0, 0, Batch{}
	delete(p.of.open, key{p.topic, p.id})
	close(p.done)
}

// detach takes the partition from its broker. What is in flight does not count any more.
func (p *Partition) detach() {
	p.turn++
	p.flying = nil
	if p.node != nil {
		delete(p.node.partitions, p)
		p.node = nil
	}
}

// look has the partition's leader looked for at once.
func (p *Partition) look() {
	p.detach()
	p.due, p.refresh = time.Now(), false
	p.of.notify()
}

// retry has the partition's leader looked for again, after a while.
func (p *Partition) retry(err error) {
	p.failed(err)
	now := time.Now()
	if p.failing.IsZero() {
		p.failing = now
	}
	if permanent(err) || !heals(err) && now.Sub(p.failing) >= patience {
		p.fail(err)
		return
	}
	if now.Sub(p.failing) >= patience {
		p.of.failed(kindFetch, p.String(), err)
	}
	p.follower, p.refresh, p.failure = -1, true, err
	p.lookAfter(now, max(p.backoff, minBackoff))
}

// lookAfter has the partition's leader looked for again after a while, which doubles each time.
func (p *Partition) lookAfter(now time.Time, wait time.Duration) {
	p.detach()
	p.due = now.Add(wait)
	p.backoff = min(max(2*wait, minBackoff), maxBackoff)
	p.of.notify()
}

// failed counts a failure.
func (p *Partition) failed(err error) { p.of.settings.OnFailure(ReasonOf(err)) }

// fail ends reading with what Next returns when the buffer is empty.
func (p *Partition) fail(err error) {
	p.detach()
	p.err = err
	p.settle()
	p.signal()
}

// share returns how many bytes the partition may hold.
func (p *Partition) share() int {
	s := &p.of.settings
	return max(min(s.MaxBytes/max(len(p.of.open), 1), 4*s.fetch), 2*minFetch)
}

// trim throws away what is buffered beyond the share, to be fetched again later: the
// share shrinks when other partitions are opened.
func (p *Partition) trim() {
	n := len(p.queue)
	for ; n > 0 && p.buffered+p.inHand > p.share(); n-- {
		p.buffered -= p.queue[n-1].size
		p.of.release(&p.queue[n-1])
	}
	if n == len(p.queue) {
		return
	}
	p.turn++ // what is in flight is behind that
	p.flying = nil
	p.position, p.epoch = p.handed, p.handedEpoch
	if n > 0 {
		p.position, p.epoch = p.queue[n-1].Next, p.queue[n-1].LeaderEpoch
	}
	clear(p.queue[n:])
	p.queue = p.queue[:n]
}

// hasRoom reports whether the partition may be fetched.
func (p *Partition) hasRoom() bool { return p.buffered+p.inHand <= p.share()/2 }

// fetchSize returns how many bytes of it to ask for, a tenth less than there is room
// for by the last answer's expansion.
func (p *Partition) fetchSize() int {
	if p.size > 0 {
		return p.size
	}
	return max(min(p.of.settings.fetch, int(0.9*float64(p.share()/2)/p.expansion)), minFetch)
}

// settle ends Opened.
func (p *Partition) settle() {
	if !p.settled {
		p.settled = true
		close(p.found)
	}
}

func (p *Partition) signal() {
	select {
	case p.ready <- struct{}{}:
	default:
	}
}

func (p *Partition) wakeNode() {
	if p.node != nil {
		p.node.wake()
	}
}
