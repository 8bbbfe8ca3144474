package offsets

import (
	"cmp"
	"time"

	"github.com/kielgo/kiel/internal/operr"
)

// pendingCommit is an offset of a Tracker in a request.
type pendingCommit struct {
	position
	content   content
	tracker   *Tracker
	committer *Committer
	before    <-chan struct{} // the observed channel of the commit before; nil for none
	prepared  time.Time       // when the position was read from the Tracker
	answered  chan struct{}   // closed when the request is answered
	observed  chan struct{}   // closed when the observer was notified of this commit and all before

	// tracker.mu guards the fields below.
	sent       bool      // the commit may have been written; false if it never was
	aborts     int64     // the number of aborts when the commit was last marked as sent
	authorized time.Time // when the commit was last authorized
}

// authorize returns nil if the commit may be stored at this moment.
//
// It is called at every write while the commit's request is in flight, also at writes of other connections. So several goroutines
// may call it at the same time, and each may be stopped between any two steps. Therefore its last step checks whether the Tracker
// has ended, and in the same step marks the commit as sent. Whoever gives the partition up first ends the Tracker, and then reads
// whether the commit was marked as sent (Committer.abort). So a permission was either given before the end, and its write is
// aborted; or it is refused. A commit that the claim forbids is not marked as sent, so no connection is aborted for it.
func (p *pendingCommit) authorize() error {
	now := time.Now() // before the check of trust, so that authorized is never after the end of trust
	if err := p.tracker.mayCommit(); err != nil {
		return err
	}
	if err := p.markSent(now); err != nil {
		return operr.New("consumer", "commit", p.tracker.partition.String(), err)
	}
	return nil
}

// markSent marks the commit as one that may be written to the present connections. It returns an error if the Tracker has ended,
// or if the commit is that of a passed position and messages may have been handed out. It reads the number of aborts under the
// Tracker's mutex, so p.aborts never decreases.
func (p *pendingCommit) markSent(authorized time.Time) error {
	t := p.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed && t.awaited != p:
		return ErrEnded
	case p.content == passed && t.begun.Load():
		return errOvertaken
	}
	p.sent, p.aborts = true, p.committer.aborts.Load()
	if authorized.After(p.authorized) {
		p.authorized = authorized
	}
	return nil
}

// authorizedAt returns when the commit was last authorized: at the write of its request, or at a later write.
func (p *pendingCommit) authorizedAt() time.Time {
	p.tracker.mu.Lock()
	defer p.tracker.mu.Unlock()
	return p.authorized
}

// maybeInFlight reports whether the commit may be on a connection. aborts is the number of aborts so far.
func (p *pendingCommit) maybeInFlight(aborts int64) bool {
	p.tracker.mu.Lock()
	defer p.tracker.mu.Unlock()
	return p.sent && p.aborts == aborts
}

// offsetCommit returns the commit for the store.
func (p *pendingCommit) offsetCommit() OffsetCommit {
	t := p.tracker
	begun := cmp.Or(t.beginning.Load(), &beginning{})
	return OffsetCommit{
		Place:     p.committer.placeOf(t),
		Partition: t.partition, Offset: p.offset, TopicID: t.topicID, Text: p.text, LeaderEpoch: p.leaderEpoch, FirstPartitions: begun.firstPartitions, Began: begun.at,
		Token: t.claim.Token(), EpochPath: t.claim.EpochPath(), EpochVersion: t.claim.EpochVersion(), Incarnation: t.claim.Incarnation(),
		Authorize: p.authorize,
	}
}

// prepare returns a commit of the marked position, or of the committed one again.
func (t *Tracker) prepare(c *Committer, content content) *pendingCommit {
	t.mu.Lock()
	defer t.mu.Unlock()
	if content == passed && t.used {
		content = marked
	}
	p := &pendingCommit{
		position: t.committed, content: content, tracker: t, committer: c, prepared: time.Now(),
		answered: make(chan struct{}), observed: make(chan struct{}),
	}
	if content == marked || content == passed {
		p.position = t.position()
	}
	if t.last != nil {
		p.before = t.last.observed
	}
	t.last = p
	return p
}

// notify has the observer notified of a stored commit, and closes p.observed. If stored is false it only closes p.observed. The
// notifications of a Tracker come in the order of its commits.
func (c *Committer) notify(p *pendingCommit, stored bool) {
	t := p.tracker
	notify := func() {
		if !stored {
			close(p.observed)
			return
		}
		e := Committed{Partition: t.partition, Claim: t.claim, Offset: p.offset, Since: p.authorizedAt()}
		if !c.options.Notify(e, func() { close(p.observed) }) {
			close(p.observed)
		}
	}
	if p.before != nil {
		select {
		case <-p.before:
		default:
			go func() { // ends with the notification before, or with Run
				select {
				case <-p.before:
					notify()
				case <-c.done:
				}
			}()
			return
		}
	}
	notify()
}

// abort aborts the connections if p may be on one of them. p is not marked as sent any more: its Tracker has ended, or has begun.
// The other commits of the same request are sent again.
//
// When many partitions are given up at once, the first abort is enough for all, unless one of their commits was sent again in
// between. If connections were aborted after p was last marked as sent, p's connection was among them: the dialer knows a
// connection before a write on it is authorized, and c.aborts is raised before the dialer collects its connections.
func (c *Committer) abort(p *pendingCommit) {
	c.aborting.Lock() // waits until a running abort has ended its connections
	defer c.aborting.Unlock()
	if p.maybeInFlight(c.aborts.Load()) {
		c.aborts.Add(1) // before Abort: a commit that is marked as sent from now on may be written to a new connection
		c.options.Abort()
	}
}
