package consumer

import (
	"sync/atomic"
	"time"
)

// posting is a book's offset in a request.
type posting struct {
	book     *book
	offset   int64
	text     string
	before   <-chan struct{} // told of the posting before; nil for none
	ledger   *ledger
	answered chan struct{}         // closed when the request is answered
	told     chan struct{}         // closed when the observer was told of this and all before
	asked    atomic.Pointer[asked] // nil: never, so it was never written either
}

// asked is when a posting was last found to be allowed, and how often the connections had been thrown away before.
type asked struct {
	at     time.Time
	aborts int64
}

// ask asks whether the posting may be stored at this moment, and notes when it was
// asked if so: the last such moment, before the request is written, is when the
// commit was sent. It is taken before the question, and so never after trust.
func (p *posting) ask() error {
	now := asked{at: time.Now(), aborts: p.ledger.aborts.Load()}
	if err := p.book.allowed(); err != nil {
		return err
	}
	p.asked.Store(&now)
	return nil
}

// sent returns when the posting was last found to be allowed.
func (p *posting) sent() time.Time {
	if a := p.asked.Load(); a != nil {
		return a.at
	}
	return time.Time{}
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

// throwAway ends the connections if p may be on one of them. Others that were in
// the same request are sent again. So when many partitions are given up at once
// the connections end once, unless one of them was sent again in between.
func (l *ledger) throwAway(p *posting) {
	l.aborting.Lock()
	defer l.aborting.Unlock()
	if a := p.asked.Load(); a != nil && a.aborts == l.aborts.Load() {
		l.aborts.Add(1) // first: what is asked from now on may be written to new ones
		l.abort()
	}
}
