package offsets

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
)

const (
	// idleRepeat is how often the offset of an idle partition is committed again. Kafka deletes an offset of a group without
	// members of its own protocol some time after its last commit (KIP-211): 7 days unless configured (KIP-186), 1 day before
	// Kafka 2.0.
	idleRepeat = 6 * time.Hour
	// retryRepeat is the time after which a failed repeat is tried again.
	retryRepeat = time.Minute
	// retryRead is the time after which a failed read is tried again. It is short, because the log has said that reads fail, and
	// is to say soon that they work again.
	retryRead = 5 * time.Second
	// maxAnswerAge is the age up to which an answer for a repeat is used.
	maxAnswerAge = time.Second
	// releaseTimeout bounds the repeat for a partition that is released and has no mark.
	releaseTimeout = time.Second
)

// kindOffsets is the kind of errors in the log which say that stored offsets can't be read.
const kindOffsets = "offsets"

// errReleased is the error when releaseTimeout is over.
var errReleased = errors.New("no time is left")

// question asks for the stored offsets of some Trackers, whose committed positions may have to be written again, and has the
// answer.
type question struct {
	trackers []*Tracker
	releases []release // the releases that wait for the answer; nil for due repeats
	found    map[kiel.Partition]Stored
	err      error
	asked    time.Time
	answered time.Time
}

// release asks for a repeat before a partition is released.
type release struct {
	tracker *Tracker
	answer  chan error // has room for one answer
}

// read is a Store's Fetch or Peek.
type read func(ctx context.Context, ps []kiel.Partition) (map[kiel.Partition]Stored, error)

// ask reads the stored offsets of q's Trackers and sends q to answers, unless ctx ends.
func (c *Committer) ask(ctx context.Context, fetch read, q question, within time.Duration, answers chan<- question) {
	ps := make([]kiel.Partition, len(q.trackers))
	for i, t := range q.trackers {
		ps[i] = t.partition
	}
	q.asked = time.Now()
	c.reads.Start(func() {
		reading, cancel := context.WithTimeoutCause(ctx, within, ErrLate)
		defer cancel()
		q.found, q.err = fetch(reading, ps)
		q.answered = time.Now()
		select {
		case answers <- q:
		case <-ctx.Done():
		}
	})
}

// due returns the Trackers of which a repeat is due.
func (c *Committer) due(now time.Time) []*Tracker {
	return slices.DeleteFunc(c.all(), func(t *Tracker) bool { return !t.isDue(now) || !t.isObserved() })
}

// askRepeats reads the stored offsets of the Trackers of which a repeat is due, unless such a read is in flight. A failed read is
// repeated even if no repeat is due any more, so that the log says when reads work again: the partitions may have been committed
// or given up meanwhile, and no other repeat may be due for hours.
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
		c.ask(ctx, c.options.Store.Fetch, question{trackers: due}, LastCommitTimeout, c.repeats)
	}
}

// repeat writes the positions again that differ from the answer of q. A failed repeat is tried again later. An answer that waited
// too long for a slow commit is dropped; the next tick reads again.
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
		if !t.isDue(now) || t.storedAfter(q.asked) {
			continue // a commit has made the repeat unnecessary, or the answer may be older than the commit
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

// of returns the stored offset of t.
func (q question) of(t *Tracker) (Stored, error) {
	if q.err != nil {
		return Stored{}, q.err
	}
	s := q.found[t.partition]
	return s, s.Err
}

// needed reports whether the committed position of t is to be written again when the store has s: to restore a deleted position,
// to raise one that an older commit has lowered, or to keep it from expiring. A position that another program has stored is left
// alone from then on.
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
	return t.compare(s, c.placeOf(t), keepAlive)
}

// compare is needed for an s that a group like this one has stored, or that is no offset. Commits of t are made in own. An offset
// that a mirror has copied while t was open is written over: other members have done the messages before it, in another cluster.
// Tokens are compared within a tree alone.
func (t *Tracker) compare(s Stored, own Place, keepAlive bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case s.Offset < 0, s.IsCopied(own.Cluster):
		return true
	case s.Token > t.claim.Token() && s.Place.sameTree(own):
		return false // a later owner has stored it, so this claim has ended
	case !SameTopic(s.TopicID, t.topicID), s.Offset < t.committed.offset:
		return true
	case s.Offset > t.committed.offset:
		t.committed = position{offset: s.Offset, text: s.Text, leaderEpoch: s.LeaderEpoch} // a late commit of a former owner, which had done these messages
	}
	return keepAlive
}

// LeaveAlone stops repeats, and commits of a position that has passed no message, until a mark is committed.
func (t *Tracker) LeaveAlone() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.repeats, t.leftAlone, t.passed = nil, true, false
}

// isLeftAlone reports whether LeaveAlone was called, and no mark was committed since.
func (t *Tracker) isLeftAlone() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.leftAlone
}

// isDue reports whether a repeat is due.
func (t *Tracker) isDue(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.closed && len(t.repeats) > 0 && !now.Before(t.repeats[0])
}

// isStale reports whether the last commit is so old that it must be repeated, before Kafka deletes the offset.
func (t *Tracker) isStale(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return now.Sub(t.storedAt) >= idleRepeat/2
}

// storedAfter reports whether an offset was stored after at.
func (t *Tracker) storedAfter(at time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.storedAt.After(at)
}

// repeated drops the repeats that were due.
func (t *Tracker) repeated(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropRepeats(now)
}

// dropRepeats drops the repeats that were due, and schedules the next one. t.mu is held.
func (t *Tracker) dropRepeats(now time.Time) {
	if t.leftAlone {
		return
	}
	for len(t.repeats) > 0 && !now.Before(t.repeats[0]) {
		t.repeats = t.repeats[1:]
	}
	if len(t.repeats) == 0 {
		t.repeats = []time.Time{now.Add(idleRepeat)}
	}
}

// repeatAt postpones the repeats that are due before at to that time.
func (t *Tracker) repeatAt(at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leftAlone {
		return
	}
	t.repeats = slices.DeleteFunc(t.repeats, func(due time.Time) bool { return due.Before(at) })
	t.repeats = slices.Insert(t.repeats, 0, at)
}

// askReleases reads the stored offsets of the Trackers that are being released: of first, and of all that wait.
func (c *Committer) askReleases(ctx context.Context, first release) {
	q := question{releases: gather(c.releases, first)}
	for _, r := range q.releases {
		q.trackers = append(q.trackers, r.tracker)
	}
	c.releasing = true
	c.ask(ctx, c.options.Store.Fetch, q, releaseTimeout, c.released)
}

// restore writes the positions of Trackers that are being released, if they differ from the answer of q.
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

// release closes t, which has no mark to commit. Before that it writes the committed position again if the store has lost or
// lowered it, in one attempt, within releaseTimeout. If the attempt fails, the release goes on.
func (c *Committer) release(ctx context.Context, t *Tracker) {
	short, cancel := context.WithTimeoutCause(ctx, releaseTimeout, errReleased)
	defer cancel()
	if !t.isLeftAlone() && t.mayCommit() == nil {
		err := c.waitForRestore(short, t)
		if err != nil && ctx.Err() == nil && !Fenced(err) && !errors.Is(err, sarama.ErrUnknownTopicOrPartition) { // a deleted topic has no offsets
			c.options.Errors.FailedWarn(kindOffsets, t.partition.String(), operr.New("consumer", "position not confirmed before the release", "", err))
		}
	}
	c.close(ctx, short, t)
}

// waitForRestore has Run read the stored offset of t, and restore it if needed.
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

// gather returns first and all requests that wait.
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
