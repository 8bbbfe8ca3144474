package offsets

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
)

const (
	// idleRepeat is how often the offset of a partition is committed again on
	// which nothing happens. Kafka forgets the offset of a group without members
	// of its own protocol a time after its last commit: 7 days unless
	// configured, 1 day before Kafka 2.0.
	idleRepeat = 6 * time.Hour
	// retryRepeat is when a repeat is tried again that failed.
	retryRepeat = time.Minute
	// retryRead is when it is tried again if nothing could be read. The log says that this fails, so it is to say soon that it works again.
	retryRead = 5 * time.Second
	// maxAnswerAge is how old an answer to a repeat's question may be when it is acted on.
	maxAnswerAge = time.Second
	// releaseTimeout bounds the repeat for a partition that is released and has no mark.
	releaseTimeout = time.Second
)

// kindOffsets is the kind of errors in the log: stored offsets can't be read.
const kindOffsets = "offsets"

// errReleased ends the repeat for a partition that is released.
var errReleased = errors.New("consumer: no time left before the release")

// question is what is stored for some Trackers, whose committed positions may have to be
// written again.
type question struct {
	trackers []*Tracker
	releases []release // who waits for it; nil for the repeats that are due
	found    map[kiel.Partition]Stored
	err      error
	answered time.Time
}

// release asks for a repeat before a partition is released.
type release struct {
	tracker *Tracker
	answer  chan error // of 1
}

// ask reads what is stored for q's Trackers and sends q to answers. It ends with ctx.
func (c *Committer) ask(ctx context.Context, q question, within time.Duration, answers chan<- question) {
	ps := make([]kiel.Partition, len(q.trackers))
	for i, t := range q.trackers {
		ps[i] = t.partition
	}
	c.reads.Start(func() {
		reading, cancel := context.WithTimeoutCause(ctx, within, ErrLate)
		defer cancel()
		q.found, q.err = c.options.Store.Fetch(reading, ps)
		q.answered = time.Now()
		select {
		case answers <- q:
		case <-ctx.Done():
		}
	})
}

// due returns the Trackers whose committed positions are to be written again.
func (c *Committer) due(now time.Time) []*Tracker {
	return slices.DeleteFunc(c.all(), func(t *Tracker) bool { return !t.isDue(now) || !t.isObserved() })
}

// askRepeats reads what is stored for the Trackers of which a repeat is due, unless that is
// under way. One with a mark that will be committed by itself needs no repeat. After a read that has failed another follows when none is
// due any more: the partitions may have been committed or given up meanwhile, and no other may be due for hours.
func (c *Committer) askRepeats(ctx context.Context, now time.Time) {
	if c.repeating {
		return
	}
	due := c.due(now)
	if len(due) == 0 && c.unread != nil && !now.Before(c.rereadAt) {
		due = []*Tracker{c.unread}
	}
	if len(due) > 0 {
		c.repeating = true
		c.ask(ctx, question{trackers: due}, SettleTimeout, c.repeats)
	}
}

// repeat writes the positions again that q shows to need it. What failed is tried again later. An
// answer that a slow commit kept waiting is dropped, and with the next tick asked for again.
func (c *Committer) repeat(ctx context.Context, q question) {
	now := time.Now()
	if now.Sub(q.answered) > maxAnswerAge {
		return
	}
	c.unread = nil
	if q.err == nil {
		c.options.Errors.OK(kindOffsets, "")
	} else if ctx.Err() == nil {
		c.options.Errors.FailedWarn(kindOffsets, "", q.err)
		c.unread, c.rereadAt = q.trackers[0], now.Add(retryRead)
	}
	trackers := map[*Tracker]content{}
	for _, t := range q.trackers {
		if !t.isDue(now) {
			continue // a commit came between
		}
		if q.err != nil {
			t.repeatAt(now.Add(retryRead))
			continue
		}
		s, err := q.of(t)
		if err != nil {
			t.repeatAt(now.Add(retryRepeat))
			continue
		}
		if c.needed(ctx, t, s, t.isStale(now)) {
			trackers[t] = committed
		}
		t.repeated(now)
	}
	for t, a := range c.flush(ctx, trackers) {
		if a.err != nil {
			t.repeatAt(now.Add(retryRepeat))
		}
	}
}

// of returns what is stored for t.
func (q question) of(t *Tracker) (Stored, error) {
	if q.err != nil {
		return Stored{}, q.err
	}
	s := q.found[t.partition]
	return s, s.Err
}

// needed says whether the committed position of t is to be written again when the store has s:
// to restore one that is not stored any more, to raise one that an older commit has lowered, or
// to keep it alive. What somebody else has stored is left alone from then on.
func (c *Committer) needed(ctx context.Context, t *Tracker, s Stored, keepAlive bool) bool {
	if s.Offset >= 0 && !s.Ours {
		t.LeaveAlone()
		if !c.leftAlone[t.partition.Topic] {
			c.leftAlone[t.partition.Topic] = true
			c.options.Logger.InfoContext(ctx, "offsets stored by another program are not kept alive",
				"partition", t.partition.String(), "offset", s.Offset)
		}
		return false
	}
	return t.compare(s, keepAlive)
}

// compare says whether the committed position is to be written again when the store has s, which
// is ours, or nothing.
func (t *Tracker) compare(s Stored, keepAlive bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case s.Offset < 0:
		return true
	case s.Token > t.claim.Token():
		return false // this claim has ended
	case !SameTopic(s.TopicID, t.topicID), s.Offset < t.committed.offset:
		return true
	case s.Offset > t.committed.offset:
		t.committed = position{offset: s.Offset, text: s.Text, epoch: s.LeaderEpoch} // a late commit of an owner before, which had done that much
	}
	return keepAlive
}

// LeaveAlone ends the repeats, until a mark is committed.
func (t *Tracker) LeaveAlone() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.repeats, t.alone = nil, true
}

func (t *Tracker) isLeftAlone() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.alone
}

// isDue says whether a commit is to be repeated.
func (t *Tracker) isDue(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.closed && len(t.repeats) > 0 && !now.Before(t.repeats[0])
}

// isStale says whether the last commit is so old that the offset must be kept alive.
func (t *Tracker) isStale(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return now.Sub(t.storedAt) >= idleRepeat/2
}

// repeated drops the repeats that were due.
func (t *Tracker) repeated(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropRepeats(now)
}

func (t *Tracker) dropRepeats(now time.Time) {
	if t.alone {
		return
	}
	for len(t.repeats) > 0 && !now.Before(t.repeats[0]) {
		t.repeats = t.repeats[1:]
	}
	if len(t.repeats) == 0 {
		t.repeats = []time.Time{now.Add(idleRepeat)}
	}
}

// repeatAt makes a repeat due at another time instead of now.
func (t *Tracker) repeatAt(at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.alone {
		return
	}
	t.repeats = slices.DeleteFunc(t.repeats, func(due time.Time) bool { return due.Before(at) })
	t.repeats = slices.Insert(t.repeats, 0, at)
}

// askReleases reads what is stored for the Trackers that are released now.
func (c *Committer) askReleases(ctx context.Context, first release) {
	q := question{releases: gather(c.releases, first)}
	for _, r := range q.releases {
		q.trackers = append(q.trackers, r.tracker)
	}
	c.releasing = true
	c.ask(ctx, q, releaseTimeout, c.released)
}

// restore writes the positions of Trackers that are released, if q shows that they need it.
func (c *Committer) restore(ctx context.Context, q question) {
	trackers := map[*Tracker]content{}
	results := make([]error, len(q.releases))
	for i, t := range q.trackers {
		s, err := q.of(t)
		results[i] = err
		if err == nil && t.isOpen() && c.needed(ctx, t, s, false) {
			trackers[t] = restored
		}
	}
	answers := c.flush(ctx, trackers)
	for i, r := range q.releases {
		if a, ok := answers[r.tracker]; ok {
			results[i] = a.err
		}
		r.answer <- results[i]
	}
}

// release closes t, in which nothing was marked. It writes the committed position again
// before, if the store has lost or lowered it: in one try, within releaseTimeout. If that
// fails the release goes on.
func (c *Committer) release(ctx context.Context, t *Tracker) {
	short, cancel := context.WithTimeoutCause(ctx, releaseTimeout, errReleased)
	defer cancel()
	if !t.isLeftAlone() && t.mayCommit() == nil {
		err := c.waitForRestore(short, t)
		if err != nil && ctx.Err() == nil && !Fenced(err) && !errors.Is(err, sarama.ErrUnknownTopicOrPartition) { // a deleted topic has no offsets
			c.options.Errors.FailedWarn(kindOffsets, t.partition.String(), fmt.Errorf("position not confirmed before the release: %w", err))
		}
	}
	c.close(ctx, short, t)
}

func (c *Committer) waitForRestore(ctx context.Context, t *Tracker) error {
	r := release{tracker: t, answer: make(chan error, 1)}
	select {
	case c.releases <- r:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.done:
		return ErrEnded
	}
	select {
	case err := <-r.answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.done:
		return ErrEnded
	}
}

// gather returns first and what else waits in requests.
func gather[T any](requests <-chan T, first T) []T {
	all := []T{first}
	for {
		select {
		case r := <-requests:
			all = append(all, r)
		default:
			return all
		}
	}
}
