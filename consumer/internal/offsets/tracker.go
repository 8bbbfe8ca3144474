package offsets

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/session"
)

// Claim is the claim under which a partition is open; an *ownership.Claim.
type Claim interface {
	Token() int64
	Version() uint64
	EpochPath() string
	EpochVersion() int32
	Incarnation() *session.Incarnation
	Trusted() bool
}

// position is an offset, the user's text with it, and the leader epoch of the record batch
// before it, -1 when that is not known.
type position struct {
	offset int64
	text   string
	epoch  int32
}

// Tracker is the position of one open partition. Its methods may be called from any
// goroutine; none blocks.
type Tracker struct {
	partition kiel.Partition
	claim     Claim
	topicID   sarama.Uuid                    // when the partition was opened
	currentID func(topic string) sarama.Uuid // the topic's id as known now

	firstPartitions atomic.Int32 // see OffsetCommit

	mu        sync.Mutex
	closed    bool           // no mark is taken, and nothing but awaited may be written
	awaited   *pendingCommit // what Close waits for; nil when nothing may be written
	next      int64          // marked: the offset of the next message to read
	text      string         // the user's, given with the mark
	dirty     bool           // next is to be committed, and never was
	dirtyAt   time.Time      // of the oldest mark since the last that was committed; means nothing while dirty is false
	used      bool           // something was marked or reset since the partition was opened
	committed position
	storedAt  time.Time      // when it was opened, or something was stored last
	repeats   []time.Time    // when to commit again, the next one first
	alone     bool           // somebody else has stored an offset: nothing is committed again
	last      *pendingCommit // the newest; nil before the first

	windowed  atomic.Bool   // Done was called
	size      int64         // the window: how many messages are handed out from the oldest one on that is not marked
	tail      int64         // the offset after the last message that was delivered
	delivered int64         // the position after all that was delivered
	window    window        // what was delivered and is not marked
	epochs    epochs        // of what was delivered, and of the batch before the start
	full      chan struct{} // closed when there may be room again; nil while nobody waits for that
	fullSince time.Time
}

// SetFirstPartitions makes n the OffsetCommit.FirstPartitions of commits that are made from now on.
func (t *Tracker) SetFirstPartitions(n int32) { t.firstPartitions.Store(n) }

// SetStartEpoch takes note of the leader epoch of the record batch before the start position,
// -1 when it is not known. It is called before anything is delivered.
func (t *Tracker) SetStartEpoch(epoch int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.committed.epoch, t.epochs = epoch, nil
	t.epochs.add(t.delivered-1, epoch, t.next)
}

// SetEpoch takes note that of what is delivered next the record batches from offset from on
// have a leader epoch; that of those before is not known. The epoch is stored with positions
// among these. It is called right before each Delivered.
func (t *Tracker) SetEpoch(from int64, epoch int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if from > t.delivered {
		t.epochs.add(t.delivered, -1, t.next)
	}
	t.epochs.add(max(from, t.delivered), epoch, t.next)
}

// position returns the marked position. An epoch is looked for here, and at no mark.
func (t *Tracker) position() position {
	p := position{offset: t.next, text: t.text, epoch: -1}
	if t.next <= t.delivered {
		p.epoch = t.epochs.before(t.next)
	}
	return p
}

// Mark raises the position, as sarama's MarkOffset does: all messages below offset are
// done. When these are all that were delivered, the position is the one after the last
// batch, behind gaps of the log and control records. It returns false, and does nothing,
// when the Tracker was closed.
func (t *Tracker) Mark(offset int64, text string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if offset >= t.tail && offset < t.delivered {
		offset = t.delivered
	}
	t.used = true
	if !t.closed && offset > t.next {
		t.set(offset, text)
		t.window.markTo(offset)
		t.room()
	}
	return !t.closed
}

// Done marks the message at offset alone. The position is that of the oldest message that
// is not marked, or the one after the last batch when all are. From the first call on
// Room bounds how far hand-out may be ahead of the position. A message that was not
// delivered is ignored. Done returns false, and does nothing, when the Tracker was closed.
func (t *Tracker) Done(offset int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.used = true
	t.window.markDone(offset)
	t.windowed.Store(true)
	if t.next < t.window.blind {
		return true
	}
	next, ok := t.window.oldest()
	if !ok {
		next = t.delivered
	}
	if next > t.next {
		t.set(next, "")
		t.room()
	}
	return true
}

// Delivered takes note of a batch whose messages are about to be handed out, in order of
// their offsets. next is the position after the batch, which may be far above the last
// message's when the log has gaps or control records there; a batch may be empty. Before
// the first mark a position that passes these is not committed: the user may commit by
// other means, in transactions. The Tracker keeps no reference to messages.
func (t *Tracker) Delivered(messages []sarama.ConsumerMessage, next int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	for len(messages) > 0 && messages[0].Offset < t.tail {
		messages = messages[1:] // was delivered
	}
	marked := t.next >= t.delivered
	if n := len(messages); n > 0 {
		t.tail = messages[n-1].Offset + 1
		marked = t.next >= t.tail // marked before it was delivered
		t.window.deliver(messages, max(next, t.tail))
		t.window.markTo(t.next)
	}
	t.delivered = max(t.delivered, t.tail, next)
	if marked && t.delivered > t.next {
		t.next = t.delivered
		if t.used {
			t.makeDirty()
		}
	}
}

// Room says whether the message at offset, which was delivered, may be handed out now:
// then it returns nil. Else it returns a channel that is closed when it is worth asking
// again. Before the first call of Done it costs next to nothing.
func (t *Tracker) Room(offset int64) <-chan struct{} {
	if !t.windowed.Load() {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fits(offset) {
		return nil
	}
	if t.full == nil {
		t.full, t.fullSince = make(chan struct{}), time.Now()
	}
	return t.full
}

func (t *Tracker) fits(offset int64) bool {
	if t.closed {
		return true
	}
	if t.next < t.window.blind {
		return false
	}
	number, ok := t.window.number(offset)
	return !ok || number-t.window.runs[0].first() < t.size
}

// room wakes up who waits for room.
func (t *Tracker) room() {
	if t.full != nil {
		close(t.full)
		t.full = nil
	}
}

// HeldBack says whether hand-out is held back because the window is full, since when, and
// the offset of the oldest message that is not marked. The time is that of the first
// refusal since a message was handed out or the oldest one was marked.
func (t *Tracker) HeldBack() (oldest int64, since time.Time, held bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.full == nil {
		return 0, time.Time{}, false
	}
	if offset, ok := t.window.oldest(); ok && t.next >= t.window.blind {
		return offset, t.fullSince, true
	}
	return t.next, t.fullSince, true
}

// set makes next the marked position.
func (t *Tracker) set(next int64, text string) {
	t.next, t.text = next, text
	t.makeDirty()
}

// makeDirty notes that there is something to commit. It looks at the clock only when there was nothing before.
func (t *Tracker) makeDirty() {
	if !t.dirty {
		t.dirty, t.dirtyAt = true, time.Now()
	}
}

// Reset lowers the position, as sarama's ResetOffset does. What was marked alone stays
// marked: the next Mark or Done raises the position again. It returns false, and does
// nothing, when the Tracker was closed.
func (t *Tracker) Reset(offset int64, text string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used = true
	if !t.closed && offset <= t.next {
		t.set(offset, text)
	}
	return !t.closed
}

// Move sets the position that a policy chose. Nothing was delivered yet. If the position is left alone, only a Commit of this
// Tracker commits it.
func (t *Tracker) Move(offset int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next, t.text, t.dirty, t.dirtyAt = offset, "", !t.alone, time.Now()
	t.tail, t.delivered, t.window, t.epochs = offset, offset, window{}, nil
}

// close takes no more marks. Until end is called it lets nothing be written but the
// newest commit, which it returns. The commits before that were answered: the
// Committer sends one request after the other.
func (t *Tracker) close() *pendingCommit {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed { // once: what end has forbidden stays so
		t.closed, t.awaited = true, t.last
	}
	return t.last
}

// end lets nothing be written any more.
func (t *Tracker) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed, t.awaited = true, nil
}

// mayCommit says whether the claim allows that an offset of the partition is stored at
// this moment.
func (t *Tracker) mayCommit() error {
	switch {
	case !t.claim.Trusted():
		return fmt.Errorf("commit %s: %w", t.partition, ErrLost)
	case !SameTopic(t.topicID, t.currentID(t.partition.Topic)):
		return fmt.Errorf("commit %s: %w", t.partition, Recreated(t.partition.Topic))
	default:
		return nil
	}
}

// isDirty says whether there is a mark to commit.
func (t *Tracker) isDirty() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dirty
}

// isObserved says whether the observer was notified of all that was stored.
func (t *Tracker) isObserved() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil {
		return true
	}
	select {
	case <-t.last.observed:
		return true
	default:
		return false
	}
}

// stored notes that p was committed.
func (t *Tracker) stored(p *pendingCommit, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.committed = p.position
	if t.next == p.offset && t.text == p.text {
		t.dirty = false
	}
	if p.content == marked {
		t.alone, t.dirtyAt = false, p.prepared
	}
	t.storedAt = now
	t.dropRepeats(now)
}

// isOpen says whether the Tracker was not closed.
func (t *Tracker) isOpen() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.closed
}

// Marked returns the marked position, and whether it was never committed.
func (t *Tracker) Marked() (offset int64, text string, dirty bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.next, t.text, t.dirty
}

// Progress is how far a partition has come.
type Progress struct {
	Marked    int64     // the position that is marked
	Committed int64     // the offset that was stored last, or found when the partition was opened
	Oldest    time.Time // when the oldest mark was made that is not committed; zero when there is none
	Used      bool      // something was marked or reset since the partition was opened
	Alone     bool      // messages are marked alone, by Done
}

// Progress returns how far the partition has come.
func (t *Tracker) Progress() Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := Progress{Marked: t.next, Committed: t.committed.offset, Used: t.used, Alone: t.windowed.Load()}
	if t.dirty {
		p.Oldest = t.dirtyAt
	}
	return p
}
