package offsets

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/session"
)

// LastCommitTimeout bounds the last commit of a partition that is given up.
const LastCommitTimeout = 10 * time.Second

// Committer holds the Trackers of one member and commits them. Once an interval it commits all marked Trackers together. Requests
// are committed at once; those that arrive while a commit is in flight are committed together after it.
type Committer struct {
	options  Options
	requests chan commitRequest
	releases chan release
	done     chan struct{} // closed when Run has returned
	probes   chan struct{} // receives the calls of Alive
	storing  atomic.Bool   // Run waits for the store
	opened   atomic.Int64  // number of Trackers that were made

	// The fields below belong to Run. Stored offsets are read on other goroutines: one for repeats, one for releases.
	reads     kafkaconn.Calls
	repeats   chan question   // receives answers for repeats
	repeating bool            // a read for repeats is in flight
	unread    *Tracker        // a Tracker of the last read for repeats, if that read failed; else nil
	rereadAt  time.Time       // when unread is to be read again
	released  chan question   // receives answers for releases
	releasing bool            // a read for releases is in flight
	leftAlone map[string]bool // the topics for which the log says that offsets are left alone
	audit     audit

	texts textLimit

	aborting sync.Mutex   // held while connections are aborted
	aborts   atomic.Int64 // number of aborts that have begun

	mu       sync.RWMutex
	trackers map[kiel.Partition]*Tracker
	storedAt time.Time // when an offset was stored last; zero before the first

	acceptedAt time.Time // when the newest request was answered, if all of its offsets were stored; else zero
}

// Options of a [Committer]. All but Auto and MaxUnmarked must be set.
type Options struct {
	Store       Store
	Abort       func()        // aborts the store's connections, with the requests on them
	Auto        bool          // marks are committed once an Interval and when a partition is closed
	Interval    time.Duration // the time between two commits of all marks
	Timeout     time.Duration // the session timeout, after which the first repeat is due
	MaxUnmarked int           // how many messages of a partition are handed out from the oldest unmarked one on; 0 is DefaultWindow

	// Place returns where commits under an incarnation are made, as far as it is known. It does not block. nil is unknown.
	Place func(*session.Incarnation) Place
	// Audited receives what an audit has found, which may be nothing. It does not block. nil is no audits.
	Audited func([]Finding)
	// Reachable reports whether a broker of the store answers. An audit that fails while none does is no trouble of its own. It
	// does not block. nil is always.
	Reachable func() bool
	// CurrentID returns the id of a topic as it is known now; zero when it is not known.
	CurrentID func(topic string) sarama.Uuid
	// Elsewhere reports whether the store's brokers are another cluster's now, to which nothing is committed. It does not block.
	// nil is never.
	Elsewhere func() bool
	// Kept returns the partitions that this member is to keep. The last commit of any other is asked for as soon as its handler
	// has returned. It does not block. nil is all.
	Kept func() map[kiel.Partition]bool
	// Notify has the observer notified and then calls observed. It does not block. It returns false, and does not call observed,
	// when there is no observer.
	Notify func(c Committed, observed func()) bool
	// Report reports why an offset of a partition was not stored.
	Report func(error, kiel.Partition)
	// Text reports that the text of a mark is lost, an ErrTextLost, or, by nil, that a later one is stored. first says that it is
	// the first of the partition since it was opened. nil is allowed.
	Text func(p kiel.Partition, err error, first bool)
	// Logger receives lines that are no errors.
	Logger *slog.Logger
	// Errors receives errors that are not reported.
	Errors *errlog.Log
	// Count counts the commit of one partition's offset, with its result and duration.
	Count func(p kiel.Partition, err error, took time.Duration)
}

// Committed says that an offset was stored.
type Committed struct {
	Partition kiel.Partition
	Claim     Claim
	Offset    int64
	Since     time.Time // the last time, before the answer came, at which the offset was authorized
}

// commitRequest asks for the commit of one partition, or of all marked ones when tracker is nil.
type commitRequest struct {
	tracker *Tracker
	content content           // marked or passed
	last    bool              // the partition is given up after this commit
	answer  chan commitAnswer // has room for one answer
}

// commitAnswer is the result of a commitRequest.
type commitAnswer struct {
	err      error
	observed <-chan struct{} // closed when the observer was notified; nil if the request was for all marked Trackers
}

// NewCommitter returns a Committer; it works while its Run does.
func NewCommitter(opts Options) *Committer {
	return &Committer{
		options:  opts,
		requests: make(chan commitRequest),
		releases: make(chan release),
		done:     make(chan struct{}),
		probes:   make(chan struct{}),
		repeats:  make(chan question), released: make(chan question), leftAlone: map[string]bool{},
		audit:    audit{answers: make(chan question)},
		trackers: map[kiel.Partition]*Tracker{},
	}
}

// Open returns the Tracker of a partition that starts at offset. It closes the Tracker that the partition had before, so a late
// mark of an earlier handler has no effect.
func (c *Committer) Open(p kiel.Partition, claim Claim, topicID sarama.Uuid, offset int64, text string) *Tracker {
	t := c.newTracker(p, claim, topicID, offset, text)
	c.register(t)
	return t
}

// OpenStored is Open at an offset that is stored and left alone: the offset is not committed until the user marks or resets.
func (c *Committer) OpenStored(p kiel.Partition, claim Claim, topicID sarama.Uuid, offset int64, text string) *Tracker {
	t := c.newTracker(p, claim, topicID, offset, text)
	t.dirty = false
	t.LeaveAlone()
	c.register(t)
	return t
}

// OpenFound is Open at an offset that the store has, with what this claim would commit with it but for its token. It is not
// committed until the first repeat, unless the user marks or resets.
func (c *Committer) OpenFound(p kiel.Partition, claim Claim, topicID sarama.Uuid, offset int64, text string) *Tracker {
	t := c.newTracker(p, claim, topicID, offset, text)
	t.dirty, t.beganAt = false, t.storedAt
	t.storedAt = time.Time{} // nobody knows how old the offset is
	c.register(t)
	return t
}

// acceptedFor is how long a commit that was stored says that Kafka takes commits.
const acceptedFor = time.Minute

// Accepts reports whether the store takes commits of this member, as far as is known without asking: it has taken the newest one,
// not long ago. It does not block.
func (c *Committer) Accepts() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return !c.acceptedAt.IsZero() && time.Since(c.acceptedAt) < acceptedFor
}

func (c *Committer) newTracker(p kiel.Partition, claim Claim, topicID sarama.Uuid, offset int64, text string) *Tracker {
	now := time.Now()
	return &Tracker{
		number: c.opened.Add(1), partition: p, claim: claim, topicID: topicID, currentID: c.options.CurrentID, elsewhere: c.options.Elsewhere,
		next: offset, text: text, dirty: true, dirtyAt: now, committed: position{offset: offset, text: text, leaderEpoch: -1},
		repeats:  []time.Time{now.Add(c.options.Timeout), now.Add(time.Minute), now.Add(10 * time.Minute)},
		storedAt: now,
		auto:     c.options.Auto,
		texts:    &c.texts,
		size:     int64(cmp.Or(c.options.MaxUnmarked, DefaultWindow)), tail: offset, delivered: offset,
	}
}

// register makes t the Tracker of its partition.
func (c *Committer) register(t *Tracker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.trackers[t.partition]; old != nil {
		old.end()
	}
	c.trackers[t.partition] = t
}

// Close stops accepting marks for t. It waits for a commit in flight until ctx ends, for LastCommitTimeout at most, so that the
// commit does not arrive after the next owner's commits. Then it aborts the connections. ctx is the claim's lifetime, or the time
// in which the claim is to be closed.
//
// While Close waits, the claim is held, and the commit in flight may still be written. A refusal at that moment would end the
// connection that writes next. On the coordinator's connection that would cost t the answer to its commit.
func (c *Committer) Close(ctx context.Context, t *Tracker) { c.close(ctx, ctx, t) }

// close is Close, but waits only until short ends for a commit that restores the position.
func (c *Committer) close(ctx, short context.Context, t *Tracker) {
	p := t.close()
	c.mu.Lock()
	if c.trackers[t.partition] == t {
		delete(c.trackers, t.partition)
	}
	c.mu.Unlock()
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, LastCommitTimeout, ErrLate)
	defer cancel()
	if p.content != restored {
		short = ctx
	}
	answered := c.wait(short, p.answered)
	t.end() // before the abort: a write that asks later is refused, one that has asked before is aborted
	if answered {
		c.wait(ctx, p.observed)
	} else if short.Err() != nil {
		c.abort(p)
	}
}

// wait waits for done, until ctx or Run ends, and reports whether done was closed.
func (c *Committer) wait(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done: // also when ctx or Run has ended, too
		return true
	default:
	}
	select {
	case <-done:
		return true
	case <-ctx.Done():
	case <-c.done:
	}
	return false
}

// Find returns the Tracker of an open partition, or nil.
func (c *Committer) Find(topic string, partition int32) *Tracker {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.trackers[kiel.Partition{Topic: topic, ID: partition}]
}

// Commit stores the position of t, or of all marked partitions when t is nil, and returns when it is stored or refused, or when
// ctx or Run ends. When t's position is stored, Commit also waits for the observer. All errors but those of ctx are reported.
func (c *Committer) Commit(ctx context.Context, t *Tracker) error {
	_, err := c.request(ctx, commitRequest{tracker: t, content: marked})
	return err
}

// request is Commit for the tracker of q, and also reports whether Run has taken the request. If so, Run counts its result.
func (c *Committer) request(ctx context.Context, q commitRequest) (taken bool, err error) {
	t := q.tracker
	q.answer = make(chan commitAnswer, 1)
	select {
	case c.requests <- q:
	case <-ctx.Done():
		return false, unanswered(t, context.Cause(ctx))
	case <-c.done:
		return false, unanswered(t, ErrEnded)
	}
	select {
	case a := <-q.answer:
		if a.observed != nil {
			c.wait(ctx, a.observed)
		}
		return true, a.err
	case <-ctx.Done():
		return true, unanswered(t, context.Cause(ctx))
	case <-c.done:
		return true, unanswered(t, ErrEnded)
	}
}

// CommitLast stores the last marks of a partition that is given up, and closes t, all within LastCommitTimeout. ctx is the
// claim's lifetime.
//
// Without Options.Auto, marks that were not committed are dropped, as sarama does. Without a mark the committed position is
// written again if the store has lost or lowered it. That may take a second, and its failure is logged and is no error. A mark
// that can't be committed because the claim has ended is counted, even if Run does not take the request.
func (c *Committer) CommitLast(ctx context.Context, t *Tracker) error {
	ctx, cancel := context.WithTimeoutCause(ctx, LastCommitTimeout, ErrLate)
	defer cancel()
	if !c.options.Auto || !t.isDirty() {
		c.release(ctx, t)
		return nil
	}
	defer c.Close(ctx, t)
	return c.store(ctx, t, true)
}

// Store is CommitLast, but leaves t open, and restores no position.
func (c *Committer) Store(ctx context.Context, t *Tracker) error {
	if !c.options.Auto || !t.isDirty() {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, LastCommitTimeout, ErrLate)
	defer cancel()
	return c.store(ctx, t, false)
}

// store commits the marks of t again and again until they are stored or refused, or ctx ends. last says that t is closed after
// it.
func (c *Committer) store(ctx context.Context, t *Tracker, last bool) error {
	wait := pause.Backoff{Growth: pause.Doubling(storeBackoff, maxStoreBackoff)}
	for {
		taken, err := c.request(ctx, commitRequest{tracker: t, content: t.due(), last: last})
		if refusal := t.mayCommit(); !taken && refusal != nil {
			c.options.Count(t.partition, refusal, 0)
		}
		if err == nil || ctx.Err() != nil || refused(err) {
			return err
		}
		if err := wait.Wait(ctx); err != nil {
			return unanswered(t, err)
		}
	}
}

// Run commits until ctx ends.
func (c *Committer) Run(ctx context.Context) {
	defer close(c.done)
	defer c.reads.Wait()
	tick := time.NewTicker(c.options.Interval)
	defer tick.Stop()
	audit := time.NewTimer(untilAudit())
	defer audit.Stop()
	for {
		releases := c.releases
		if c.releasing {
			releases = nil // those that arrive now are read together afterwards
		}
		select {
		case <-ctx.Done():
			return
		case <-c.probes:
		case <-tick.C:
			c.flush(ctx, c.waiting(time.Now()))
			c.askRepeats(ctx, time.Now())
		case <-audit.C:
			audit.Reset(c.askAudit(ctx, time.Now()))
		case q := <-c.audit.answers:
			c.judge(ctx, q)
		case q := <-c.repeats:
			c.repeating = false
			c.repeat(ctx, q)
		case first := <-releases:
			c.askReleases(ctx, first)
		case q := <-c.released:
			c.releasing = false
			c.restore(ctx, q)
		case first := <-c.requests:
			requests := c.together(ctx, gather(c.requests, first))
			answers := c.flush(ctx, c.wanted(requests))
			for _, q := range requests {
				q.answer <- answers[q.tracker] // the zero answer if the request was for all marked Trackers, whose errors were reported
			}
		}
	}
}

// Alive returns nil when Run has answered, waits for the store, or has ended. It returns an error when ctx ends first.
func (c *Committer) Alive(ctx context.Context) error {
	tick := time.NewTicker(storeBackoff)
	defer tick.Stop()
	for !c.storing.Load() {
		select {
		case c.probes <- struct{}{}:
			return nil
		case <-c.done:
			return nil
		case <-tick.C:
		case <-ctx.Done():
			return operr.Because(errNoAnswer, context.Cause(ctx))
		}
	}
	return nil
}

// all returns all Trackers; the slice is the caller's.
func (c *Committer) all() []*Tracker {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Collect(maps.Values(c.trackers))
}

// Backlog says how long marks have waited to be committed.
type Backlog struct {
	Oldest   time.Time // the time of the oldest mark that is not committed; zero when all are
	StoredAt time.Time // when an offset was stored last; zero before the first
}

// Backlog returns the Backlog of all Trackers.
func (c *Committer) Backlog() Backlog {
	c.mu.RLock()
	defer c.mu.RUnlock()
	b := Backlog{StoredAt: c.storedAt}
	for _, t := range c.trackers {
		if at := t.Progress().Oldest; !at.IsZero() && (b.Oldest.IsZero() || at.Before(b.Oldest)) {
			b.Oldest = at
		}
	}
	return b
}

// answered takes note of an answer to a request: whether an offset was stored, and whether one was refused.
func (c *Committer) answered(at time.Time, stored, refused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if stored {
		c.storedAt, c.acceptedAt = at, at
	}
	if refused {
		c.acceptedAt = time.Time{}
	}
}

// flush commits trackers and reports refusals. They are in one request, but for Trackers of one partition, each of which has a
// request of its own. flush does not wait for the observer, so that a call that hangs holds up its own partition alone.
func (c *Committer) flush(ctx context.Context, trackers map[*Tracker]content) map[*Tracker]commitAnswer {
	answers := make(map[*Tracker]commitAnswer, len(trackers))
	start := time.Now()
	for _, round := range rounds(slices.Collect(maps.Keys(trackers))) {
		c.send(ctx, round, trackers, answers)
	}
	if len(trackers) > 0 {
		c.audit.sent(start, time.Now())
	}
	return answers
}

// rounds divides trackers so that no two in a round are of one partition: a request, and its answer, has each partition once.
// Trackers of one partition follow in the order in which they were opened, so that the commit of the newest is the last.
func rounds(trackers []*Tracker) [][]*Tracker {
	slices.SortFunc(trackers, func(a, b *Tracker) int { return cmp.Compare(a.number, b.number) })
	var out [][]*Tracker
	before := make(map[kiel.Partition]int, len(trackers)) // how many Trackers of the partition are in out
	for _, t := range trackers {
		n := before[t.partition]
		before[t.partition]++
		if n == len(out) {
			out = append(out, nil)
		}
		out[n] = append(out[n], t)
	}
	return out
}

// send commits trackers, which are of different partitions, in one request, and adds the answers.
func (c *Committer) send(ctx context.Context, trackers []*Tracker, contents map[*Tracker]content, answers map[*Tracker]commitAnswer) {
	pending := make([]*pendingCommit, 0, len(trackers))
	for _, t := range trackers {
		pending = append(pending, t.prepare(c, contents[t]))
	}
	start := time.Now()
	c.storing.Store(true)
	results := c.commit(ctx, pending)
	c.storing.Store(false)
	now := time.Now()
	stored, refused := false, false
	for _, p := range pending {
		t := p.tracker
		err := results[t.partition]
		if errors.Is(err, errOvertaken) { // nothing is to be stored any more
			answers[t] = commitAnswer{observed: p.observed}
			close(p.answered)
			c.notify(p, false)
			continue
		}
		answers[t] = commitAnswer{err: err, observed: p.observed}
		c.options.Count(t.partition, err, now.Sub(start))
		close(p.answered)
		c.reportText(p, err)
		if err == nil {
			stored = true
			t.stored(p, now)
			c.notify(p, true)
			continue
		}
		refused = refused || !Fenced(err)
		c.notify(p, false)
		if ctx.Err() == nil && !Fenced(err) && p.content != restored { // ownership reports the end of a claim, release a failed restore
			c.options.Report(err, t.partition)
		}
	}
	c.answered(now, stored, refused)
}
