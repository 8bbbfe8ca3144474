package fetch

import (
	"context"
	"errors"
	"time"

	"github.com/kielgo/kiel/internal/operr"
)

// Partition is one partition that is being read. Its methods may be called concurrently, but Next by one goroutine at a time.
type Partition struct {
	of *Fetcher
	key
	ready chan struct{} // holds a token when Next may have something to return
	done  chan struct{} // closed by Close
	found chan struct{} // closed when Kafka has accepted or refused the position

	// The fields below are guarded by of.mu.

	turn     int   // raised when answers in flight must be dropped
	position int64 // the offset to fetch next
	epoch    int32 // the leader epoch of the batch before position; -1 when it is not known
	err      error // why reading can't go on; nil while it can
	closed   bool

	queue       []stretch // what waits, as it came
	buffered    int       // bytes of queue
	inHand      int       // bytes, as they came, of what Next has handed out last, or has begun to
	taken       int64     // the position after what Next has taken from the queue
	takenEpoch  int32     // the leader epoch before taken
	handed      int64     // the position after what Next has handed out
	handedEpoch int32     // the leader epoch before handed
	waits       int64     // a timestamp of the messages that Next has taken and not handed out, in ms; below 0 for none
	seeks       int       // how often Reposition was called
	paused      bool

	end, stable int64     // high watermark and last stable offset; -1 before the first answer
	endAt       time.Time // when an answer had them
	listed      int64     // the offset after the last readable message, as Kafka has answered to Freshen
	listedAt    time.Time // when it has; zero before the first such answer

	node        *node     // the broker to fetch from; nil while it is searched
	leaderEpoch int32     // the leader's epoch
	flying      *link     // the connection with a request in flight for the partition; nil for none
	follower    int32     // the id of the follower to fetch from; -1 for the leader
	lease       time.Time // until when the follower is fetched from

	looking bool          // a search for the leader runs
	refresh bool          // the next search must ask for fresh metadata
	outside bool          // the leader has answered that position is out of range
	due     time.Time     // when the next search is due
	backoff time.Duration // the wait before the search after that
	failing time.Time     // since when fetches fail, but for quotas; zero when they do not
	hungry  time.Time     // since when a quota of the broker allows no messages; zero when it does
	failure error         // the newest failure
	decided bool          // found is closed

	size  int    // bytes to ask for when a record batch is larger than the normal size; 0 for the normal size
	alone bool   // the partition is fetched in a request of its own
	quiet bool   // the last answer had no messages
	check *check // compares the position with the new leader's log; nil when that is done
	hunt  *hunt  // searches for a record batch that can't be read; nil for none

	watched watched

	// The fields below belong to the goroutine that calls Next.

	hand stretch  // what Next has taken last
	rest unpacked // what is left of it
	seen int      // seeks when it was taken
}

// watched is what the watchdog has seen of a partition.
type watched struct {
	position int64     // the position at the last check
	since    time.Time // when the partition was first seen standing still at position; zero when it was not
	reset    time.Time // when the watchdog reset the partition last
}

// Opened waits until Kafka has accepted the position. If Kafka refuses it, Opened returns the error that Next would return. What
// can't be read behind messages that have come is Next's to return. Opened gives up after 10 s without an answer, but not while
// bytes of the first answer arrive, and not before a slow broker has been asked a second time. The search for the leader goes on
// after that, until the caller closes the partition.
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
			return operr.New("consumer", "open", p.String(), context.Cause(ctx))
		case <-tick.C:
			waiting = p.answerComes()
		}
	}
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	switch {
	case p.closed:
		return operr.New("consumer", "open", p.String(), ErrClosed)
	case len(p.queue) > 0:
		return nil // Next returns that first
	case p.err != nil || p.end >= 0:
		return p.err
	case p.failure != nil:
		return operr.New("consumer", "open", p.String(), operr.Because(ErrNoAnswer, p.failure))
	default:
		return operr.New("consumer", "open", p.String(), ErrNoAnswer)
	}
}

// answerComes returns whether the first request for the partition is in flight. Its connection ends if no byte comes. While bytes
// come, a second request would only begin the same answer anew. If the first request was ended by silence, the second one is
// waited for, too, because it has more time.
func (p *Partition) answerComes() bool {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	silent, ok := errors.AsType[*silentError](p.failure)
	return p.flying != nil && p.end < 0 && (p.failure == nil || ok && silent.after == silence)
}

// Next returns the next batch. It blocks until there is one, and returns ctx's cause when ctx ends first. Other errors say why
// reading can't go on, and are returned by all later calls, too: a [RangeError], a [TruncatedError] or an [UnreadableError],
// Kafka's refusal, or [ErrClosed]. The call frees the memory of the batch before.
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

// take returns messages that wait: as many as take a part of the partition's share in memory, or a single one. It holds no lock
// while it decompresses.
func (p *Partition) take() (out Batch, some bool, err error) {
	out, limit := p.begin()
	waiting := 0 // about so many messages wait behind the batch in hand
	for err == nil && out.size < limit && (out.Messages == nil || len(out.Messages) < cap(out.Messages)) {
		if p.rest.raw == nil {
			var ok bool
			if waiting, ok, err = p.pop(&out); !ok {
				break
			}
		}
		err = p.unpack(&out, limit, waiting)
		some = some || err == nil || len(out.Messages) > 0
	}
	if !p.finish(&out) {
		return Batch{}, false, nil
	}
	if some {
		err = nil // the next call returns it
	}
	return out, some, err
}

// begin frees the memory of what was handed out, and returns an empty batch and about how many bytes it may take.
func (p *Partition) begin() (out Batch, limit int) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.seen != p.seeks || p.closed {
		p.seen, p.rest = p.seeks, unpacked{}
	}
	if p.rest.raw == nil {
		p.hand = stretch{}
	}
	p.inHand = p.hand.bytes
	out = Batch{Next: p.handed, LeaderEpoch: p.handedEpoch, LeaderEpochFrom: p.handed}
	return out, min(max(p.share()/8, minHandOut), maxHandOut)
}

// pop takes what waits first from the queue. Behind it about so many messages wait.
func (p *Partition) pop(out *Batch) (waiting int, ok bool, err error) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	switch {
	case p.closed:
		return 0, false, operr.New("consumer", "read", p.String(), ErrClosed)
	case p.seen != p.seeks: // finish drops what is in out
		return 0, false, nil
	case len(p.queue) == 0:
		return 0, false, p.err
	}
	p.hand = p.queue[0]
	p.queue[0] = stretch{}
	if p.queue = p.queue[1:]; len(p.queue) == 0 {
		p.queue = nil
	}
	p.buffered -= p.hand.bytes
	p.inHand += p.hand.bytes
	p.taken, p.takenEpoch = p.hand.next, p.hand.leaderEpoch
	if out.Messages == nil {
		for i := 0; i < len(p.queue) && waiting < maxHandOut/messageOverhead; i++ {
			waiting += min(int(p.queue[i].count), maxHandOut/messageOverhead)
		}
	}
	if p.hand.unknown {
		out.setLeaderEpoch(out.Next, -1)
	}
	return waiting, true, nil
}

// unpack appends messages of what is in hand, which it decompresses first if it was just taken.
func (p *Partition) unpack(out *Batch, limit, waiting int) (err error) {
	b := &p.hand.recordBatch
	if p.rest.raw == nil && b.records != nil {
		if p.rest, err = p.of.settings.unpacker.open(*b); err == nil {
			out.setLeaderEpoch(b.first, b.epoch)
		}
	}
	if p.rest.raw != nil {
		p.rest.makeRoom(out, limit, waiting)
		err = p.rest.decode(out, p, limit)
	}
	if err != nil {
		return p.spoiltInHand(max(out.Next, b.first), &decodingError{err})
	}
	if p.rest.raw == nil {
		out.Next = max(out.Next, p.hand.next)
		out.setLeaderEpoch(p.hand.leaderEpochFrom, p.hand.leaderEpoch)
	}
	return nil
}

// finish notes what is handed out. It returns false if nothing is, because Reposition was called meanwhile; then take is to be
// called again.
func (p *Partition) finish(out *Batch) bool {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.seen != p.seeks {
		p.signal()
		return false
	}
	p.handed, p.handedEpoch, p.waits = out.Next, out.LeaderEpoch, -1
	if p.rest.raw != nil {
		p.waits = p.hand.time()
	}
	// Not only when there was no room before: other partitions that open or close change the share.
	if p.flying == nil && p.hasRoom() {
		p.wakeNode()
	}
	return true
}

// Reposition has Next go on at offset. Batches that were fetched, and answers to requests in flight, are dropped. If Kafka does
// not have the offset, Next returns a [RangeError]. When reading has ended, Next returns why, and no batch of before.
func (p *Partition) Reposition(offset int64) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.closed {
		return
	}
	p.queue, p.buffered = nil, 0
	p.seeks++
	if p.err != nil {
		return
	}
	p.position, p.taken, p.handed = offset, offset, offset
	p.epoch, p.takenEpoch, p.handedEpoch, p.waits = -1, -1, -1, -1
	p.check, p.hunt, p.quiet, p.alone, p.size, p.outside = nil, nil, false, false, 0, false
	p.watched.since = time.Time{}
	p.look() // as when it is opened: no long poll is waited for
	p.expect()
}

// Pause stops fetching. Next still returns buffered batches.
func (p *Partition) Pause() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.paused = true
}

// Resume starts fetching again.
func (p *Partition) Resume() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.paused = false
	p.wakeNode()
}

// HighWatermark returns the offset after the last message that all in-sync replicas have, according to the last answer. It is -1
// before the first answer. HighWatermark does not block: if the partition is not fetched, it has the end read again as Freshen
// does, for later calls. While a request for the partition is in flight, HighWatermark does not look at the clock.
func (p *Partition) HighWatermark() int64 {
	return p.read(func() int64 {
		if p.flying == nil {
			p.refreshEnd(0)
		}
		switch {
		case !p.listedAt.After(p.endAt):
			return p.end
		case p.of.settings.committed():
			return max(p.end, p.listed)
		default:
			return p.listed
		}
	})
}

// read calls f with the fetcher's mu held.
func (p *Partition) read(f func() int64) int64 {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	return f()
}

// Lag returns the number of offsets from the end of the batch that Next returned last to the end of the readable messages, and
// the age of the record batch that has the next message, which is that of its first message unless compaction has removed it. The
// age is zero when that batch has not been fetched or has no timestamp.
func (p *Partition) Lag() (messages int64, behind time.Duration) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	messages = max(p.newestEnd()-p.handed, 0)
	if p.waits >= 0 {
		return messages, Age(timeOf(p.waits))
	}
	for i := range p.queue {
		if s := &p.queue[i]; !s.isEmpty() {
			return messages, Age(timeOf(s.time()))
		}
	}
	return messages, 0
}

// End returns the offset after the last readable message, according to the last answer. It is -1 before the first answer.
func (p *Partition) End() int64 { return p.read(p.newestEnd) }

// FailingSince returns since when fetches of the partition fail. It is zero when they do not fail, and when the partition is not
// fetched, because it is paused or has no room.
func (p *Partition) FailingSince() time.Time {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.paused || !p.hasRoom() {
		return time.Time{}
	}
	if p.failing.IsZero() || !p.hungry.IsZero() && p.hungry.Before(p.failing) {
		return p.hungry
	}
	return p.failing
}

// readable returns the offset after the last readable message.
func (p *Partition) readable() int64 { return p.of.settings.readable(p.end, p.stable) }

// Close ends reading and drops the buffered batches. It does not wait for requests in flight. The partition may be opened again
// at once.
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
	p.queue, p.buffered, p.inHand = nil, 0, 0
	delete(p.of.open, p.key)
	close(p.done)
}

// detach removes the partition from its broker. Answers in flight are dropped.
func (p *Partition) detach() {
	p.turn++
	p.flying = nil
	if p.node != nil {
		delete(p.node.partitions, p)
		p.node = nil
	}
}

// look has the partition's leader searched at once.
func (p *Partition) look() {
	p.detach()
	p.due, p.refresh = time.Now(), false
	p.of.wake()
}

// retry has the partition's leader searched again after a back-off, or ends reading if err will stay.
func (p *Partition) retry(err error) {
	p.countFailure(err)
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

// lookAfter has the partition's leader searched after wait, and doubles the wait for the next time.
func (p *Partition) lookAfter(now time.Time, wait time.Duration) {
	p.detach()
	p.due = now.Add(wait)
	p.backoff = min(max(2*wait, minBackoff), maxBackoff)
	p.of.wake()
}

// countFailure counts a failure to fetch.
func (p *Partition) countFailure(err error) { p.of.settings.OnFailure(ReasonOf(err)) }

// fail ends reading: Next returns err when the buffer is empty.
func (p *Partition) fail(err error) {
	p.detach()
	p.err = err
	p.decide()
	p.signal()
}

// share returns how many bytes the partition may hold.
func (p *Partition) share() int {
	s := &p.of.settings
	return max(min(s.MaxBytes/max(len(p.of.open), 1), 4*s.fetch), 2*minFetch)
}

// trim drops the batches beyond the partition's share, which shrinks when other partitions are opened. They are fetched again
// later.
func (p *Partition) trim() {
	n := len(p.queue)
	for ; n > 0 && p.buffered+p.inHand > p.share(); n-- {
		p.buffered -= p.queue[n-1].bytes
	}
	if n == len(p.queue) {
		return
	}
	p.turn++ // an answer in flight continues the dropped batches
	p.flying, p.hunt = nil, nil
	p.position, p.epoch = p.taken, p.takenEpoch
	if n > 0 {
		p.position, p.epoch = p.queue[n-1].next, p.queue[n-1].leaderEpoch
	}
	clear(p.queue[n:])
	p.queue = p.queue[:n]
}

// hasRoom returns whether half of the partition's share is free, so that it may be fetched.
func (p *Partition) hasRoom() bool { return p.buffered+p.inHand <= p.share()/2 }

// fetchSize returns how many bytes to ask for: nine tenths of what has room.
func (p *Partition) fetchSize() int {
	if p.size > 0 {
		return p.size
	}
	return max(min(p.of.settings.fetch, p.share()/2/10*9), minFetch)
}

// decide makes Opened return.
func (p *Partition) decide() {
	if !p.decided {
		p.decided = true
		close(p.found)
	}
}

// signal wakes Next.
func (p *Partition) signal() {
	select {
	case p.ready <- struct{}{}:
	default:
	}
}

// wakeNode wakes the links of the partition's broker.
func (p *Partition) wakeNode() {
	if p.node != nil {
		p.node.wake()
	}
}
