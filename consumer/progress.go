package consumer

import (
	"sync"
	"time"

	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/status"
)

// position returns the offset of the next message to hand out, as far as it is known. Messages in the channel of sarama's API
// count as handed out.
func (p *Partition) position() int64 {
	c := p.cursor.Load()
	if c == nil {
		return p.start
	}
	if done := c.done.Load(); done < int64(len(c.messages)) {
		return c.messages[done].Offset
	}
	return c.next
}

// standing returns the partition's offsets, lag and pause for the status.
func (p *Partition) standing(now time.Time) status.Offsets {
	progress := p.tracker.Progress()
	lag, behind := p.lag()
	_, since, held := p.tracker.HeldBack()
	out := status.Offsets{
		Position: p.handlerPosition(), Committed: progress.Committed, Marked: progress.Marked, End: p.stream.End(),
		Uncommitted: p.uncommitted(),
		Lag:         lag, LagSeconds: behind.Seconds(), Stalled: p.stalled(now).Seconds(),
		Paused: p.pauses.has(p.id), HeldBack: held && now.Sub(since) >= heldBackLimit,
	}
	if !progress.Oldest.IsZero() {
		out.OldestUncommitted = max(now.Sub(progress.Oldest), 0).Seconds()
	}
	return out
}

// uncommitted returns how many offsets are between the committed one and the next message that the handler gets; 0 if the program
// keeps offsets itself.
func (p *Partition) uncommitted() int64 {
	if p.keepsItself {
		return 0
	}
	return max(p.handlerPosition()-p.tracker.Progress().Committed, 0)
}

// firstMessage returns when the first message was handed out; zero when none was.
func (p *Partition) firstMessage() time.Time {
	if at := p.handler.firstAt.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// received returns how many messages of c and of the batches before the handler has received. queued is the number of messages
// that were handed out and not received: they are in the channel, or wait for room there. Messages may move while received
// counts. Then its first result is too low for a moment, never too high.
func (p *Partition) received(c *cursor) (received, queued int64) {
	handed := c.before + c.done.Load()
	if to := p.handler.channel.Load(); to != nil {
		queued = int64(len(to.out))
		if queued == int64(cap(to.out)) && !p.handler.waits.Load() {
			queued++ // the next message waits for room
		}
		queued = min(queued, handed)
	}
	return handed - queued, queued
}

// upcoming returns the offset and the timestamp of the next message that the handler gets, if c or a batch before has that
// message. If the message is in the channel and of a batch before, both values may be those of a slightly earlier message.
func (p *Partition) upcoming(c *cursor) (offset int64, at time.Time, waits bool) {
	number, _ := p.received(c)
	i := number - c.before
	if i >= int64(len(c.messages)) {
		return c.next, time.Time{}, false
	}
	if to := p.handler.channel.Load(); i < 0 && to != nil {
		if offset, at, ok := to.find(number); ok {
			return offset, at, true
		}
	}
	if len(c.messages) == 0 {
		return c.next, time.Time{}, false
	}
	m := &c.messages[max(i, 0)]
	return m.Offset, m.Timestamp, true
}

// handlerPosition returns the offset of the next message that the handler gets, as far as it is known.
func (p *Partition) handlerPosition() int64 {
	c := p.cursor.Load()
	if c == nil {
		return p.start
	}
	offset, _, _ := p.upcoming(c)
	return offset
}

// stalling is what stalled has seen at its last call.
type stalling struct {
	mu       sync.Mutex
	received int64     // number of messages that the handler has received
	marked   int64     // the position that the handler has marked
	since    time.Time // the first call that found these two values; zero when the handler had no message
}

// stalled returns for how long the handler has taken no further message and marked none, though it has a message or one waits for
// it. It returns 0 when the handler waits for the next message, or has made progress since the last call. The time counts from
// the first call that found the handler so.
func (p *Partition) stalled(now time.Time) time.Duration {
	var received, queued int64
	if c := p.cursor.Load(); c != nil {
		received, queued = p.received(c)
	}
	progress := p.tracker.Progress()
	s := &p.handler.stalling
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case queued == 0 && p.isIdle(progress):
		s.since = time.Time{}
		return 0
	case s.since.IsZero() || received > s.received || progress.Marked != s.marked:
		s.received, s.marked, s.since = received, progress.Marked, now
	}
	return now.Sub(s.since)
}

// isIdle reports whether the handler has no message in hand, as far as that can be seen, and no message waits for it outside of
// the channel.
func (p *Partition) isIdle(progress offsets.Progress) bool {
	if p.handler.waits.Load() {
		return !p.hasUnmarked(progress)
	}
	lag, _ := p.lag()
	return lag == 0 && (p.handler.firstAt.Load() == nil || progress.Used && progress.Marked >= p.position())
}

// hasUnmarked reports whether the handler uses marks, and has not marked the last message that it received. It returns false for
// a loop over Messages or Batches without Done: such a loop shows that it is done by asking for the next message.
func (p *Partition) hasUnmarked(progress offsets.Progress) bool {
	if p.handler.channel.Load() == nil && !progress.MarksSingly {
		return false
	}
	return progress.Used && progress.Marked < p.position()
}
