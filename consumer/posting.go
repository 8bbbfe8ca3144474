package consumer

import (
	"fmt"
	"time"
)

// posting is a book's offset in a request.
type posting struct {
	book     *book
	offset   int64
	text     string
	before   <-chan struct{} // told of the posting before; nil for none
	ledger   *ledger
	answered chan struct{} // closed when the request is answered
	told     chan struct{} // closed when the observer was told of this and all before

	// Of the following book.mu is held.
	announced bool      // it may have been written; if not it never was
	aborts    int64     // how often connections had been thrown away when it was last announced
	passed    time.Time // when it was last found to be allowed
}

// ask asks whether the posting may be stored at this moment. It is asked again at
// every write while its request is under way, at those of other connections too, so
// by several at a time, and each may be stopped between any two steps. So the last
// step decides whether the book has ended, and announces in the same step what may be
// written now. Who gives the partition up ends the book, and looks after that at what
// was announced (see throwAway): a yes is either announced before the end, and thrown
// away, or comes after it, and is a no. What the claim forbids is not announced, so no
// connection need end for it.
func (p *posting) ask() error {
	now := time.Now() // before the question, and so never after trust
	if err := p.book.allowed(); err != nil {
		return err
	}
	if !p.announce(now) {
		return fmt.Errorf("commit %s: %w", p.book.partition, errEnded)
	}
	return nil
}

// announce notes that the posting may be written to the connections that there are
// now, unless its book has ended. The aborts are counted under the book's mutex, so
// they never go back.
func (p *posting) announce(passed time.Time) bool {
	b := p.book
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed && b.awaited != p {
		return false
	}
	p.announced, p.aborts = true, p.ledger.aborts.Load()
	if passed.After(p.passed) {
		p.passed = passed
	}
	return true
}

// sent returns when the posting was last found to be allowed: at the write of its
// request, or one after that.
func (p *posting) sent() time.Time {
	p.book.mu.Lock()
	defer p.book.mu.Unlock()
	return p.passed
}

// exposed says whether the posting may be on a connection, when connections were
// thrown away that often.
func (p *posting) exposed(aborts int64) bool {
	p.book.mu.Lock()
	defer p.book.mu.Unlock()
	return p.announced && p.aborts == aborts
}

// post makes what a request is to store: the marked position, or the committed one.
func (b *book) post(l *ledger, marked bool) *posting {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := &posting{book: b, ledger: l, offset: b.committed, text: b.comText, answered: make(chan struct{}), told: make(chan struct{})}
	if marked {
		p.offset, p.text = b.next, b.text
	}
	if b.last != nil {
		p.before = b.last.told
	}
	b.last = p
	return p
}

// tell has the observer told of a posting that was stored; of one that was not
// nothing is told. Of each book in order.
func (l *ledger) tell(p *posting, stored bool) {
	b := p.book
	tell := func() {
		if !stored {
			close(p.told)
			return
		}
		e := Event{
			Kind: Committed, Topic: b.partition.Topic, Partition: b.partition.ID,
			Token: b.claim.Token(), Version: b.claim.Version(), Offset: p.offset, Since: p.sent(),
		}
		if l.observe(e, func() { close(p.told) }) == nil {
			close(p.told)
		}
	}
	if p.before != nil {
		select {
		case <-p.before:
		default:
			go func() { // ends with the call before, or the ledger
				select {
				case <-p.before:
					tell()
				case <-l.done:
				}
			}()
			return
		}
	}
	tell()
}

// throwAway ends the connections if p may be on one of them; p's book has ended.
// Others that were in the same request are sent again. So when many partitions are
// given up at once the connections end once, unless one of them was sent again in
// between. If connections were thrown away since p was last announced, what it was
// announced for ended with them: a write asks when its connection is known to the
// dialer already, and l.aborts is counted before the dialer looks which it knows.
func (l *ledger) throwAway(p *posting) {
	l.aborting.Lock() // an abort that was begun has ended all it is to end
	defer l.aborting.Unlock()
	if p.exposed(l.aborts.Load()) {
		l.aborts.Add(1) // first: what is announced from now on may be written to new ones
		l.abort()
	}
}
