package offsets

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/pause"
)

// SettleTimeout bounds the last commit of a partition that is given up.
const SettleTimeout = 10 * time.Second

// content is what is committed of a Tracker.
type content int

const (
	marked    content = iota // the marked position
	committed                // the committed position again
	restored                 // the same, before the partition is released
)

// Committer holds the Trackers of one member and commits them: the marked ones
// together once an interval, and those that are asked for at once, together
// with what else waits while a commit is under way.
type Committer struct {
	options  Options
	requests chan commitRequest
	releases chan release
	done     chan struct{} // closed when Run has returned
	probes   chan struct{} // calls of Alive
	storing  atomic.Bool   // Run waits for the store

	// The fields below belong to Run. Stored offsets are read on other goroutines: one for repeats, one for releases.
	reads     kafkaconn.Calls
	repeats   chan question
	repeating bool
	unread    *Tracker  // one of those that could not be read when a repeat was due last; nil when that worked
	rereadAt  time.Time // when a read for it is due
	released  chan question
	releasing bool
	leftAlone map[string]bool // the topics of which it was logged that offsets are left alone

	aborting sync.Mutex   // held while connections are thrown away
	aborts   atomic.Int64 // how often that was begun

	mu       sync.RWMutex
	trackers map[kiel.Partition]*Tracker
	storedAt time.Time // when an offset was stored last; zero before the first
}

// Options of a [Committer]. All but Auto and Window must be set.
type Options struct {
	Store    Store
	Abort    func()        // ends the store's connections, with what is on them
	Auto     bool          // whether marks are committed by themselves
	Interval time.Duration // between such commits
	Timeout  time.Duration // the session timeout; the first repeat comes after it
	Window   int           // how many messages of a partition are handed out from the oldest unmarked one on; 0 is DefaultWindow

	// CurrentID returns the id of a topic as it is known now; zero when it is not known.
	CurrentID func(topic string) sarama.Uuid
	// Notify has the observer notified and then calls observed. It waits for nothing. It returns
	// false when it will not call observed, because there is nobody to notify.
	Notify func(c Committed, observed func()) bool
	// Report reports why an offset of a partition was not stored.
	Report func(error, kiel.Partition)
	// Logger receives what is not an error, Errors what fails and is not reported.
	Logger *slog.Logger
	Errors *errlog.Log
	// Count counts the result of one partition's part in a commit, and how long it took.
	Count func(p kiel.Partition, err error, took time.Duration)
}

// Committed says that an offset was stored.
type Committed struct {
	Partition kiel.Partition
	Claim     Claim
	Offset    int64
	Since     time.Time // when it was last found, before the answer came, that the offset may be stored
}

// commitRequest asks for the commit of one partition, or of all marked ones when
// tracker is nil.
type commitRequest struct {
	tracker *Tracker
	answer  chan commitAnswer // of 1
}

type commitAnswer struct {
	err      error
	observed <-chan struct{} // closed when the observer was notified; nil for all marked ones
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
		trackers: map[kiel.Partition]*Tracker{},
	}
}

// Open returns the Tracker of a partition that starts at offset. What the partition
// had before is closed: a late mark of an earlier handler finds nothing.
func (c *Committer) Open(p kiel.Partition, claim Claim, topicID sarama.Uuid, offset int64, text string) *Tracker {
	t := c.newTracker(p, claim, topicID, offset, text)
	c.register(t)
	return t
}

// OpenStored is Open at an offset that is stored and left alone: it is not committed until something is marked.
func (c *Committer) OpenStored(p kiel.Partition, claim Claim, topicID sarama.Uuid, offset int64, text string) *Tracker {
	t := c.newTracker(p, claim, topicID, offset, text)
	t.dirty = false
	t.LeaveAlone()
	c.register(t)
	return t
}

func (c *Committer) newTracker(p kiel.Partition, claim Claim, topicID sarama.Uuid, offset int64, text string) *Tracker {
	now := time.Now()
	return &Tracker{
		partition: p, claim: claim, topicID: topicID, currentID: c.options.CurrentID,
		next: offset, text: text, dirty: true, dirtyAt: now, committed: position{offset: offset, text: text, epoch: -1},
		repeats:  []time.Time{now.Add(c.options.Timeout), now.Add(time.Minute), now.Add(10 * time.Minute)},
		storedAt: now,
		size:     int64(cmp.Or(c.options.Window, DefaultWindow)), tail: offset, delivered: offset,
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

// Close takes no more marks for t and commits it no more. It waits for a commit that
// is under way, so that it does not arrive after the next owner's commits: until ctx
// ends, which is the claim's lifetime or the time to close it in, SettleTimeout at
// most. Then it aborts the connections. While it waits the claim stands, so the commit
// may be written, too: a refusal would end the connection of whoever happens to write
// next, and on the coordinator's that is the one on which t's commit is answered.
func (c *Committer) Close(ctx context.Context, t *Tracker) { c.close(ctx, ctx, t) }

// close is Close, but waits for a commit that only restores the position until short ends.
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
	ctx, cancel := context.WithTimeoutCause(ctx, SettleTimeout, ErrLate)
	defer cancel()
	if p.content != restored {
		short = ctx
	}
	answered := c.wait(short, p.answered)
	t.end() // first: what asks after this is refused, what has asked before is aborted
	if answered {
		c.wait(ctx, p.observed)
	} else if short.Err() != nil {
		c.abort(p)
	}
}

// wait waits for done, until ctx or Run ends, and says whether it came.
func (c *Committer) wait(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done: // whatever has ended too
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

// Commit stores the position of t, or of all marked partitions when t is nil, and
// returns when it is stored or refused, or when ctx or Run ends. When t is stored it
// waits for the observer too. All errors but those of ctx are reported.
func (c *Committer) Commit(ctx context.Context, t *Tracker) error {
	_, err := c.request(ctx, t)
	return err
}

// request is Commit, and says whether Run has taken the request: if so Run counts what became of it.
func (c *Committer) request(ctx context.Context, t *Tracker) (taken bool, err error) {
	q := commitRequest{tracker: t, answer: make(chan commitAnswer, 1)}
	select {
	case c.requests <- q:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-c.done:
		return false, ErrEnded
	}
	select {
	case a := <-q.answer:
		if a.observed != nil {
			c.wait(ctx, a.observed)
		}
		return true, a.err
	case <-ctx.Done():
		return true, context.Cause(ctx)
	case <-c.done:
		return true, ErrEnded
	}
}

// Settle stores what was marked last in a partition that is given up, and closes t,
// all within SettleTimeout. ctx is the claim's lifetime. Without auto commit, marks
// that were not committed are dropped, as sarama does. Without a mark the committed
// position is written again if the store has lost or lowered it; that may take a second,
// and its failure is logged and is no error. A mark that the claim's end forbids to commit
// is counted, whether or not Run comes to refuse it.
func (c *Committer) Settle(ctx context.Context, t *Tracker) error {
	ctx, cancel := context.WithTimeoutCause(ctx, SettleTimeout, ErrLate)
	defer cancel()
	if !c.options.Auto || !t.isDirty() {
		c.release(ctx, t)
		return nil
	}
	defer c.Close(ctx, t)
	return c.store(ctx, t)
}

// Store is Settle without the end: t stays open, and nothing is restored.
func (c *Committer) Store(ctx context.Context, t *Tracker) error {
	if !c.options.Auto || !t.isDirty() {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, SettleTimeout, ErrLate)
	defer cancel()
	return c.store(ctx, t)
}

// store commits what is marked in t until that is stored or refused, or ctx ends.
func (c *Committer) store(ctx context.Context, t *Tracker) error {
	wait := pause.Backoff{Growth: pause.Doubling(storeBackoff, maxStoreBackoff)}
	for {
		taken, err := c.request(ctx, t)
		if refusal := t.mayCommit(); !taken && refusal != nil {
			c.options.Count(t.partition, refusal, 0)
		}
		if err == nil || ctx.Err() != nil || refused(err) {
			return err
		}
		if err := wait.Wait(ctx); err != nil {
			return err
		}
	}
}

// Run commits until ctx ends.
func (c *Committer) Run(ctx context.Context) {
	defer close(c.done)
	defer c.reads.Wait()
	tick := time.NewTicker(c.options.Interval)
	defer tick.Stop()
	for {
		releases := c.releases
		if c.releasing {
			releases = nil // those that come now travel together
		}
		select {
		case <-ctx.Done():
			return
		case <-c.probes:
		case <-tick.C:
			c.flush(ctx, c.waiting())
			c.askRepeats(ctx, time.Now())
		case q := <-c.repeats:
			c.repeating = false
			c.repeat(ctx, q)
		case first := <-releases:
			c.askReleases(ctx, first)
		case q := <-c.released:
			c.releasing = false
			c.restore(ctx, q)
		case first := <-c.requests:
			requests := gather(c.requests, first)
			answers := c.flush(ctx, c.wanted(requests))
			for _, q := range requests {
				q.answer <- answers[q.tracker] // for all marked ones none: each error was reported
			}
		}
	}
}

// Alive returns nil when Run has answered, waits for the store, or has ended; otherwise an error when ctx ends.
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
			return fmt.Errorf("the committer does not answer: %w", context.Cause(ctx))
		}
	}
	return nil
}

// wanted returns the Trackers of requests.
func (c *Committer) wanted(requests []commitRequest) map[*Tracker]content {
	trackers := map[*Tracker]content{}
	for _, q := range requests {
		if q.tracker != nil {
			trackers[q.tracker] = marked
			continue
		}
		for _, t := range c.all() {
			if t.isDirty() {
				trackers[t] = marked
			}
		}
	}
	return trackers
}

// waiting returns the Trackers that are to be committed without anybody asking. One
// whose last commit the observer was not notified of yet is not among them.
func (c *Committer) waiting() map[*Tracker]content {
	trackers := map[*Tracker]content{}
	for _, t := range c.all() {
		if c.options.Auto && t.isDirty() && t.isObserved() {
			trackers[t] = marked
		}
	}
	return trackers
}

func (c *Committer) all() []*Tracker {
	c.mu.RLock()
	defer c.mu.RUnlock()
	trackers := make([]*Tracker, 0, len(c.trackers))
	for _, t := range c.trackers {
		trackers = append(trackers, t)
	}
	return trackers
}

// Backlog is what waits to be committed.
type Backlog struct {
	Oldest   time.Time // when the oldest mark was made that is not committed; zero when all are
	StoredAt time.Time // when an offset was stored last; zero before the first
}

// Backlog returns what waits to be committed.
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

// stored notes when an offset was stored.
func (c *Committer) stored(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.storedAt = at
}

// flush commits trackers in one request and reports what was refused. It does not
// wait for the observer: one that hangs on a partition holds up that one alone.
func (c *Committer) flush(ctx context.Context, trackers map[*Tracker]content) map[*Tracker]commitAnswer {
	if len(trackers) == 0 {
		return nil
	}
	pending := make([]*pendingCommit, 0, len(trackers))
	commits := make([]OffsetCommit, 0, len(trackers))
	for t, content := range trackers {
		p := t.prepare(c, content)
		pending = append(pending, p)
		commits = append(commits, p.offsetCommit())
	}
	start := time.Now()
	c.storing.Store(true)
	results := c.options.Store.Commit(ctx, commits)
	c.storing.Store(false)
	now := time.Now()
	answers := make(map[*Tracker]commitAnswer, len(trackers))
	stored := false
	for _, p := range pending {
		t := p.tracker
		err := results[t.partition]
		answers[t] = commitAnswer{err: err, observed: p.observed}
		c.options.Count(t.partition, err, now.Sub(start))
		close(p.answered)
		if err == nil {
			stored = true
			t.stored(p, now)
			c.notify(p, true)
			continue
		}
		c.notify(p, false)
		if ctx.Err() == nil && !Fenced(err) && p.content != restored { // the end of the claim is reported elsewhere
			c.options.Report(err, t.partition)
		}
	}
	if stored {
		c.stored(now)
	}
	return answers
}
