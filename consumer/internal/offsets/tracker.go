package offsets

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
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

// position is an offset with its metadata.
type position struct {
	offset      int64
	text        string // the user's metadata
	leaderEpoch int32  // the leader epoch of the record batch before offset; -1 when it is not known
}

// Tracker is the position of one open partition. Its methods may be called from any goroutine; none blocks, but AwaitPassed.
type Tracker struct {
	number    int64 // the number of the Tracker among those of its Committer, in order of opening
	partition kiel.Partition
	claim     Claim
	topicID   sarama.Uuid                    // the topic's id when the partition was opened
	currentID func(topic string) sarama.Uuid // returns the topic's id as known now
	elsewhere func() bool                    // reports whether the brokers are another cluster's now; nil is never
	texts     *textLimit                     // how long texts may be; nil is any

	beginning atomic.Pointer[beginning] // the group's on the topic

	mu        sync.Mutex
	closed    bool           // no mark is accepted, and only awaited may be written
	awaited   *pendingCommit // the commit that Close waits for; nil when no commit may be written
	next      int64          // the marked position: the offset of the next message to read
	withheld  bool           // messages from limit on were delivered, and taken back before anybody had received them
	limit     int64          // no mark raises the position above it while withheld is true
	again     bool           // Restart has gone back: messages from redone to seen count as not handed out, and marks of them do not count
	redone    int64          // the offset after the last message that was handed out since that Restart; valid while again is true
	seen      int64          // the offset after the last message that was handed out before any Restart
	text      string         // the user's metadata of the mark
	dirty     bool           // next was never committed, and is to be
	dirtyAt   time.Time      // the time of the oldest mark that is not committed; undefined while dirty is false
	used      bool           // the user has marked or reset since the partition was opened
	passed    bool           // next has passed offsets without messages before the first message, and is to be committed
	committed position       // the committed position
	storedAt  time.Time      // when an offset was stored last, or the partition was opened; zero after OpenFound before the first
	beganAt   time.Time      // when an offset was stored first, or found; zero before that
	repeats   []time.Time    // when the position is to be committed again, in order
	leftAlone bool           // another program has stored an offset, so no commit is repeated
	last      *pendingCommit // the newest commit; nil before the first
	foreign   *foreign       // what an audit has found last of another program or a mirror; nil before the first
	auto      bool           // marks are committed without a Commit of the user
	byUser    bool           // a position was stored after the user had marked or reset
	lost      error          // an ErrTextLost of the newest text that is lost, until it is reported; else nil
	hadLost   bool           // a lost text was reported
	resumeAt  time.Time      // until then the position is not committed once an interval

	begun        atomic.Bool   // messages may have been handed out; set under mu
	windowed     atomic.Bool   // Done was called
	size         int64         // how many messages may be handed out from the oldest unmarked one on
	tail         int64         // the offset after the last delivered message
	delivered    int64         // the position after all delivered batches
	window       window        // the messages that were delivered and are not marked
	leaderEpochs leaderEpochs  // the leader epochs of the delivered batches, and of the batch before the start
	full         chan struct{} // closed when the window may have room again; nil while nobody waits for room
	fullSince    time.Time     // when full was made
	timing       timing
}

// beginning is what commits say of the group's beginning on a topic; see OffsetCommit.
type beginning struct {
	firstPartitions int32
	at              time.Time
}

// SetBeginning sets OffsetCommit.FirstPartitions and OffsetCommit.Began of all later commits.
func (t *Tracker) SetBeginning(firstPartitions int32, began time.Time) {
	t.beginning.Store(&beginning{firstPartitions, began})
}

// SetStartLeaderEpoch sets the leader epoch of the record batch before the start position, -1 when it is not known. It is called
// before the first Delivered.
func (t *Tracker) SetStartLeaderEpoch(leaderEpoch int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.committed.leaderEpoch, t.leaderEpochs = leaderEpoch, nil
	t.leaderEpochs.add(t.delivered-1, leaderEpoch, t.next)
}

// SetLeaderEpoch sets the leader epoch of the record batches that the next Delivered has from offset from on. That of the batches
// before from is not known. It is committed with positions among these batches (KIP-320). SetLeaderEpoch is called right before
// each Delivered.
func (t *Tracker) SetLeaderEpoch(from int64, leaderEpoch int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if from > t.delivered {
		t.leaderEpochs.add(t.delivered, -1, t.next)
	}
	t.leaderEpochs.add(max(from, t.delivered), leaderEpoch, t.next)
}

// position returns the marked position. It looks up the leader epoch, which marks do not need.
func (t *Tracker) position() position {
	p := position{offset: t.next, text: t.text, leaderEpoch: -1}
	if t.next <= t.delivered {
		p.leaderEpoch = t.leaderEpochs.before(t.next)
	}
	return p
}

// IsOf reports whether the Tracker is of this partition.
func (t *Tracker) IsOf(topic string, partition int32) bool {
	return t.partition.ID == partition && t.partition.Topic == topic
}

// Mark raises the position, as sarama's MarkOffset does: all messages below offset are done. When these are all delivered
// messages, the position becomes that after the last batch, behind gaps of the log and control records. Mark returns false, and
// does nothing, when the Tracker was closed, or when offset is above that of a message that was taken back (Withhold), or was not
// handed out again since a Restart.
func (t *Tracker) Mark(offset int64, text string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used = true
	if t.again && offset > t.redone {
		return false
	}
	if offset >= t.tail && offset < t.delivered {
		offset = t.delivered
	}
	if t.withheld && offset > t.limit {
		return false
	}
	if !t.closed && offset > t.next {
		t.timing.marked()
		t.set(offset, text)
		t.window.markTo(offset)
		t.room()
	}
	return !t.closed
}

// Withhold has drop take back delivered messages that nobody has received yet; drop returns the offset of the first, and false if
// there is none. It must not block: marks wait for it. Somebody may receive a message behind the first meanwhile, and mark it.
// That mark does not count, because it would pass those that were taken back.
func (t *Tracker) Withhold(drop func() (first int64, dropped bool)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if first, dropped := drop(); dropped && !t.withheld {
		t.withheld, t.limit = true, first
	}
}

// Done marks the message at offset alone. The position is that of the oldest unmarked message, or that after the last batch when
// all messages are marked. From the first call on Room bounds how far hand-out may be ahead of the position. Done ignores a
// message that was not delivered. It returns false, and does nothing, when the Tracker was closed, or when the message was not
// handed out again since a Restart.
func (t *Tracker) Done(offset int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.again && offset >= t.redone {
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

// Delivered adds a batch whose messages are about to be handed out, in order of their offsets. next is the position after the
// batch. It may be far above the last message's offset when the log has gaps, control records or aborted transactions there. The
// batch may be empty. The Tracker keeps no reference to messages.
//
// If all messages before such offsets are marked, the position moves past them, and is committed as a mark is. Before the user's
// first mark it is committed only while no message was delivered and the position is not left alone: the user may commit messages
// in transactions, and a later commit of the Tracker would lower theirs. From the first message on
// such a commit is not written any more. For one that was written before, AwaitPassed has waited.
func (t *Tracker) Delivered(messages []sarama.ConsumerMessage, next int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	for len(messages) > 0 && messages[0].Offset < t.tail {
		messages = messages[1:] // delivered before
	}
	marked := t.next >= t.delivered
	if n := len(messages); n > 0 {
		t.tail = messages[n-1].Offset + 1
		marked = t.next >= t.tail // marked before it was delivered
		t.passed = t.passed && t.used
		t.begun.Store(true)
		t.window.deliver(messages, max(next, t.tail))
		t.window.markTo(t.next)
	}
	t.delivered = max(t.delivered, t.tail, next)
	if marked && t.delivered > t.next {
		t.next = t.delivered
		if t.used {
			t.makeDirty()
		} else {
			t.passed = len(messages) == 0 && !t.leftAlone && !t.begun.Load()
		}
	}
}

// Room returns nil if the message at offset, which was delivered, may be handed out now. Otherwise it returns a channel that is
// closed when Room is to be called again. Before the first call of Done it costs one atomic load.
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

// fits reports whether the window has room for the message at offset. t.mu is held.
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

// room wakes the goroutines that wait for room. t.mu is held.
func (t *Tracker) room() {
	if t.full != nil {
		close(t.full)
		t.full = nil
	}
}

// HeldBack reports whether the full window holds back messages, since when, and the offset of the oldest unmarked message. since
// is the first refusal of Room since a message was handed out or the oldest one was marked.
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
	if text != "" {
		text = t.fit(text)
	}
	t.next, t.text = next, text
	t.makeDirty()
}

// makeDirty has the position committed. It reads the clock only when the Tracker was not dirty before.
func (t *Tracker) makeDirty() {
	if !t.dirty {
		t.dirty, t.dirtyAt = true, time.Now()
	}
}

// Reset lowers the position, as sarama's ResetOffset does. Messages marked by Done stay marked: the next Mark or Done raises the
// position again. Reset returns false, and does nothing, when the Tracker was closed. A Reset that lowers nothing does not count
// as a use of marks: users of transactions call it after an abort.
func (t *Tracker) Reset(offset int64, text string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.used = t.used || offset < t.next; !t.closed && offset <= t.next {
		t.set(offset, text)
	}
	return !t.closed
}

// Move sets a position that a policy or Setup has chosen, before the first Delivered. If the position is left alone, only a
// Commit of this Tracker commits it.
func (t *Tracker) Move(offset int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next, t.text, t.dirty, t.dirtyAt, t.passed = offset, "", !t.leftAlone, time.Now(), false
	t.tail, t.delivered, t.window, t.leaderEpochs = offset, offset, window{}, nil
}

// Restart makes offset the marked position and the next to be delivered: what was delivered from there on is taken back. handed
// is the offset after the last message that was handed out. It reports whether messages from offset on were handed out before:
// until they are handed out again (HandedAgain), no mark of them counts, because it is from before. The position is to be
// committed only if the user has marked or reset; else he may commit in transactions. AwaitPassed is called before.
func (t *Tracker) Restart(offset, handed int64) (again bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	if t.used {
		t.set(offset, "")
	}
	t.next, t.text, t.passed = offset, "", false
	t.tail, t.delivered, t.window, t.leaderEpochs = offset, offset, window{}, nil
	t.room()
	t.begun.Store(true)
	t.seen = max(t.seen, handed)
	t.again, t.redone = offset < t.seen, offset
	return t.again
}

// HandedAgain says that the messages before offset were handed out since Restart. It reports whether there are more that were
// handed out before.
func (t *Tracker) HandedAgain(offset int64) (again bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.redone = offset
	t.again = t.again && offset < t.seen
	return t.again
}

// close stops accepting marks and returns the newest commit. Until end is called only that commit may be written. All commits
// before it were answered, because the Committer sends one request after the other.
func (t *Tracker) close() *pendingCommit {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed { // a second close must not undo end
		t.closed, t.awaited = true, t.last
	}
	return t.last
}

// end closes the Tracker so that no commit of it may be written any more.
func (t *Tracker) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed, t.awaited = true, nil
}

// mayCommit returns nil if an offset of the partition may be stored at this moment: the claim is trusted, the topic was not
// created again, and the brokers are still those of the same cluster.
func (t *Tracker) mayCommit() error {
	switch {
	case !t.claim.Trusted():
		return operr.New("consumer", "commit", t.partition.String(), ErrLost)
	case !SameTopic(t.topicID, t.currentID(t.partition.Topic)):
		return operr.New("consumer", "commit", t.partition.String(), fmt.Errorf("the topic was %w", ErrRecreated))
	case t.elsewhere != nil && t.elsewhere():
		return operr.New("consumer", "commit", t.partition.String(), ErrElsewhere)
	default:
		return nil
	}
}

// isDirty reports whether the marked position is to be committed.
func (t *Tracker) isDirty() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dirty || t.passed
}

// isObserved reports whether the observer was notified of all stored commits.
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

// stored makes p the committed position.
func (t *Tracker) stored(p *pendingCommit, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.committed = p.position
	if t.next == p.offset && t.text == p.text {
		t.dirty, t.passed = false, false
	}
	if p.content == marked {
		t.leftAlone, t.dirtyAt = false, p.prepared
	}
	t.storedAt = now
	t.byUser = t.byUser || t.used && p.content == marked
	if t.beganAt.IsZero() {
		t.beganAt = now
	}
	t.dropRepeats(now)
}

// isOpen reports whether the Tracker was not closed.
func (t *Tracker) isOpen() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.closed
}

// Marked returns the marked position, and whether it is still to be committed.
func (t *Tracker) Marked() (offset int64, text string, dirty bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.next, t.text, t.dirty || t.passed
}

// Progress is how far a partition has come.
type Progress struct {
	Marked      int64     // the marked position
	Committed   int64     // the offset that was stored last, or found when the partition was opened
	Oldest      time.Time // the time of the oldest mark that is not committed; zero when there is none
	Used        bool      // the user has marked or reset since the partition was opened
	MarksSingly bool      // Done was called
}

// Progress returns how far the partition has come.
func (t *Tracker) Progress() Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := Progress{Marked: t.next, Committed: t.committed.offset, Used: t.used, MarksSingly: t.windowed.Load()}
	if t.dirty {
		p.Oldest = t.dirtyAt
	}
	return p
}
