package offsets

import (
	"fmt"
	"time"
)

// pendingCommit is an offset of a Tracker in a request.
type pendingCommit struct {
	position
	content   content
	tracker   *Tracker
	committer *Committer
	before    <-chan struct{} // observed of the commit before; nil for none
	prepared  time.Time       // when the position was looked at
	answered  chan struct{}   // closed when the request is answered
	observed  chan struct{}   // closed when the observer was notified of this and all before

	// tracker.mu guards the fields below.
	sent       bool      // it may have been written; if not it never was
	aborts     int64     // how often connections had been aborted when it was last marked as sent
	authorized time.Time // when it was last found that it may be stored
}

// authorize says whether the commit may be stored at this moment. It is called again at
// every write while its request is under way, at those of other connections too, so
// by several at a time, and each may be stopped between any two steps. So the last
// step decides whether the Tracker has ended, and in the same step marks as sent what may
// be written now. Whoever gives the partition up ends the Tracker, and looks after that at
// what was marked as sent (see Committer.abort): a yes is either marked before the end, and
// aborted, or comes after it, and is a no. What the claim forbids is not marked, so no
// connection need end for it.
func (p *pendingCommit) authorize() error {
	now := time.Now() // before the question, and so never after trust
	if err := p.tracker.mayCommit(); err != nil {
		return err
	}
	if !p.markSent(now) {
		return fmt.Errorf("commit %s: %w", p.tracker.partition, ErrEnded)
	}
	return nil
}

// markSent notes that the commit may be written to the connections that there are
// now, unless its Tracker has ended. The aborts are counted under the Tracker's mutex,
// so they never go back.
func (p *pendingCommit) markSent(authorized time.Time) bool {
	t := p.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed && t.awaited != p {
		return false
	}
	p.sent, p.aborts = true, p.committer.aborts.Load()
	if authorized.After(p.authorized) {
		p.authorized = authorized
	}
	return true
}

// authorizedAt returns when it was last found that the commit may be stored: at the
// write of its request, or one after that.
func (p *pendingCommit) authorizedAt() time.Time {
	p.tracker.mu.Lock()
	defer p.tracker.mu.Unlock()
	return p.authorized
}

// maybeInFlight says whether the commit may be on a connection, when connections were
// aborted that often.
func (p *pendingCommit) maybeInFlight(aborts int64) bool {
	p.tracker.mu.Lock()
	defer p.tracker.mu.Unlock()
	return p.sent && p.aborts == aborts
}

// offsetCommit returns what the store gets.
func (p *pendingCommit) offsetCommit() OffsetCommit {
	t := p.tracker
	return OffsetCommit{
		Partition: t.partition, Offset: p.offset, TopicID: t.topicID, Text: p.text, LeaderEpoch: p.epoch, FirstPartitions: t.firstPartitions.Load(),
		Token: t.claim.Token(), EpochPath: t.claim.EpochPath(), EpochVersion: t.claim.EpochVersion(), Incarnation: t.claim.Incarnation(),
		Authorize: p.authorize,
	}
}

// prepare returns what a request is to store: the marked position, or the committed one.
func (t *Tracker) prepare(c *Committer, content content) *pendingCommit {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := &pendingCommit{
		position: t.committed, content: content, tracker: t, committer: c, prepared: time.Now(),
		answered: make(chan struct{}), observed: make(chan struct{}),
	}
	if content == marked {
		p.position = t.position()
	}
	if t.last != nil {
		p.before = t.last.observed
	}
	t.last = p
	return p
}

// notify has the observer notified of a commit that was stored; of one that was not it
// is not notified. The notifications of each Tracker come in order.
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

// abort ends the connections if p may be on one of them; p's Tracker has ended.
// Others that were in the same request are sent again. So when many partitions are
// given up at once the connections end once, unless one of them was sent again in
// between. If connections were aborted since p was last marked as sent, what it was
// marked for ended with them: a write asks when its connection is known to the
// dialer already, and c.aborts is counted before the dialer looks which it knows.
func (c *Committer) abort(p *pendingCommit) {
	c.aborting.Lock() // an abort that was begun has ended all it is to end
	defer c.aborting.Unlock()
	if p.maybeInFlight(c.aborts.Load()) {
		c.aborts.Add(1) // first: what is marked as sent from now on may be written to new ones
		c.options.Abort()
	}
}
