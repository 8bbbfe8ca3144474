package offsets

import (
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/allocfn"
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

// position is an offset and the user's text with it.
type position struct {
	offset int64
	text   string
}

// Tracker is the position of one open partition. Its methods may be called from any
// goroutine; none blocks.
type Tracker struct {
	partition allocfn.Partition
	claim     Claim
	topicID   sarama.Uuid                    // when the partition was opened
	currentID func(topic string) sarama.Uuid // the topic's id as known now

	mu        sync.Mutex
	closed    bool           // no mark is taken, and nothing but awaited may be written
	awaited   *pendingCommit // what Close waits for; nil when nothing may be written
	next      int64          // marked: the offset of the next message to read
	text      string         // the user's, given with the mark
	dirty     bool           // next was never committed
	committed position
	repeats   []time.Time    // when to commit again, the next one first
	every     time.Duration  // between the repeats after those
	last      *pendingCommit // the newest; nil before the first
}

// Mark raises the position, as sarama's MarkOffset does.
func (t *Tracker) Mark(offset int64, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed && offset > t.next {
		t.next, t.text, t.dirty = offset, text, true
	}
}

// Reset lowers the position, as sarama's ResetOffset does.
func (t *Tracker) Reset(offset int64, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed && offset <= t.next {
		t.next, t.text, t.dirty = offset, text, true
	}
}

// Move sets the position that a policy chose.
func (t *Tracker) Move(offset int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next, t.text, t.dirty = offset, "", true
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

// isDue says whether a commit is to be repeated.
func (t *Tracker) isDue(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.repeats) > 0 && !now.Before(t.repeats[0])
}

// stored notes that p was committed.
func (t *Tracker) stored(p *pendingCommit, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.committed = p.position
	if t.next == p.offset && t.text == p.text {
		t.dirty = false
	}
	for len(t.repeats) > 0 && !now.Before(t.repeats[0]) {
		t.repeats = t.repeats[1:]
	}
	if len(t.repeats) == 0 {
		t.repeats = []time.Time{now.Add(t.every)}
	}
}

// Marked returns the marked position, and whether it was never committed.
func (t *Tracker) Marked() (offset int64, text string, dirty bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.next, t.text, t.dirty
}
