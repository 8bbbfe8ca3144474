package lease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

// lookAtClock is how often the wall clock is compared with a lease's end. (The monotonic clock
// needs no looking.)
const lookAtClock = time.Second

// Held is a lease that is ours, until its context ends.
type Held struct {
	lease *NonBlockingLease
	token int64
	ctx   context.Context //nolint:containedctx // a hold is a lifetime
	end   context.CancelCauseFunc

	mu      sync.Mutex
	term    term
	floor   time.Time // others of our identifier may rely on the lease until then
	doubt   bool      // the record may have been written by another of our identifier
	pending *pending  // a renewal, until it is known what became of it

	release sync.Once
	gone    chan struct{} // closed when the record is gone, or is to stay
	stays   error         // set before: why it may stand
}

// pending is what a renewal has sent.
type pending struct {
	written

	term  term
	known chan struct{} // closed when it is known what became of it
}

// hold makes a hold of a try that has succeeded.
func (l *NonBlockingLease) hold(t try) *Held {
	h := &Held{
		lease: l, token: t.term.stat.Mzxid, floor: t.floor, term: t.term, gone: make(chan struct{}),
	}
	h.ctx, h.end = context.WithCancelCause(context.Background()) //nolint:forbidigo // values of an earlier ctx would hide those of Do's
	go h.expire(l.session.Hold())
	go h.guard()
	return h
}

// expire ends the hold when its time is up.
func (h *Held) expire(letGo func()) {
	defer letGo()
	for {
		left := h.left()
		if left <= 0 {
			h.end(ErrExpired)
			return
		}
		select {
		case <-time.After(min(left, lookAtClock)):
		case <-h.ctx.Done():
			return
		}
	}
}

func (h *Held) left() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.term.left(h.lease)
}

// guard ends the hold when the record is not ours any more.
func (h *Held) guard() {
	for {
		watch, known, err := h.check()
		switch {
		case h.ctx.Err() != nil:
			if watch != nil {
				watch.Stop()
			}
			return
		case errors.Is(err, session.ErrSessionExpired):
			continue
		case err != nil:
			h.end(err)
			return
		}
		select {
		case <-watch.C():
		case <-known:
			watch.Stop()
		case <-h.ctx.Done():
			watch.Stop()
			return
		}
	}
}

// check reads the record. A server to which we came with a new session may be behind, so
// before it is believed that the record is another one it must catch up.
func (h *Held) check() (watch *session.Watch, known <-chan struct{}, err error) {
	inc, err := h.lease.session.Incarnation(h.ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: can't look after %s: %w", ErrLost, h.lease.node, err)
	}
	for synced := false; ; synced = true {
		data, stat, watch, err := inc.GetW(h.ctx, h.lease.node)
		switch {
		case errors.Is(err, session.ErrSessionExpired):
			return nil, nil, err
		case err == nil && h.knows(stat):
			return watch, nil, nil
		case err == nil:
			if known := h.mayBe(data); known != nil {
				return watch, known, nil
			}
			watch.Stop()
			err = fmt.Errorf("%w: the record is now %.200q", ErrLost, data)
		case errors.Is(err, session.ErrNoNode):
			err = fmt.Errorf("%w: the record was removed", ErrLost)
		default:
			return nil, nil, fmt.Errorf("%w: can't look after %s: %w", ErrLost, h.lease.node, err)
		}
		if synced {
			return nil, nil, err
		}
		if err := inc.Sync(h.ctx, h.lease.node); err != nil && !errors.Is(err, session.ErrNoNode) {
			if errors.Is(err, session.ErrSessionExpired) {
				return nil, nil, err
			}
			return nil, nil, fmt.Errorf("%w: can't look after %s: %w", ErrLost, h.lease.node, err)
		}
	}
}

// knows reports whether a znode is what we wrote last. A version is no identity: who deletes
// the record and makes it anew begins at the same one.
func (h *Held) knows(stat session.Stat) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.same(stat)
}

// same is knows. It needs mu.
func (h *Held) same(stat session.Stat) bool {
	return stat.Czxid == h.term.stat.Czxid && stat.Mzxid == h.term.stat.Mzxid
}

// mayBe returns a channel if a record may be what a renewal has written: it is closed when that is known.
func (h *Held) mayBe(data []byte) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pending == nil || !bytes.Equal(data, h.pending.data) {
		return nil
	}
	return h.pending.known
}

// ours reports whether a record, seen under an inner lock, is what we wrote last. It finds out what became of a renewal,
// whose own contender is gone. If that can't be told the record is taken over: somebody may rely on it, so it
// keeps its end, and we rely on it no longer than before.
func (h *Held) ours(old *stored, inner *lock.Held) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.pending
	if p != nil {
		defer h.drop()
	}
	switch {
	case h.same(old.Stat):
	case p == nil || !bytes.Equal(old.data, p.data):
		return false
	case p.is(old, inner):
		h.adopt(p.term, old.Stat)
	default:
		h.term.stat, h.doubt = old.Stat, true
		if p.term.end.After(h.floor) {
			h.floor = p.term.end
		}
	}
	return true
}

// settled says what became of a renewal.
func (h *Held) settled(stat session.Stat, done bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if done {
		h.adopt(h.pending.term, stat)
	}
	h.drop()
}

// open reports whether it is not known yet what became of a renewal.
func (h *Held) open() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pending != nil
}

// forget drops a renewal if there is one.
func (h *Held) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pending != nil {
		h.drop()
	}
}

// drop ends a renewal. It needs mu.
func (h *Held) drop() {
	close(h.pending.known)
	h.pending = nil
}

// adopt goes over to a new term. It needs mu.
func (h *Held) adopt(t term, stat session.Stat) {
	t.stat = stat
	h.term = t
}

// notBefore returns until when others of our identifier may rely on the lease.
func (h *Held) notBefore() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.floor
}

// Context is the hold: it ends when the lease can't be relied on any more. Its cause is
// ErrExpired, ErrLost or ErrReleased. It is not derived from Obtain's context.
func (h *Held) Context() context.Context { return h.ctx }

// Valid reports whether the hold may be relied on at this moment, by both clocks.
func (h *Held) Valid() bool { return h.ctx.Err() == nil && h.left() > 0 }

// End returns until when the lease is ours for others, as written. The context ends by
// Options.Skew earlier.
func (h *Held) End() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.term.end
}

// Node returns the path of the record.
func (h *Held) Node() string { return h.lease.node }

// Path returns the path of the lease, for a slot that of the slot.
func (h *Held) Path() string { return h.lease.path }

// Token returns a number that is larger than that of every hold before: the mzxid of the
// record when the lease was obtained. Renewals leave it.
func (h *Held) Token() int64 { return h.token }

// Renew extends the lease: it then lasts Options.Duration from now, and no
// less than a lease that Obtain has taken over. When it fails the hold
// lasts as long as it did, unless its context has ended: then the error wraps the cause.
// An error that wraps session.ErrUncertain says that the record may have been extended;
// should it turn out so, the hold is, too.
func (h *Held) Renew(ctx context.Context) error {
	l := h.lease
	err := l.carry(ctx, func(c *call, inner *lock.Held) error { return l.renew(c, inner, h) },
		func() {},
		func(life context.Context) { l.sortOut(life, h) })
	if err != nil {
		return l.wrap("renew", err)
	}
	return nil
}

// renew extends a hold, with the inner lock held.
func (l *NonBlockingLease) renew(c *call, inner *lock.Held, h *Held) error {
	ctx := c.ctx
	if h.ctx.Err() != nil {
		return context.Cause(h.ctx)
	}
	if err := l.checkClock(ctx, inner); err != nil {
		return err
	}
	_, old, err := l.read(ctx, inner.Incarnation())
	if err != nil {
		return err
	}
	if old == nil || !h.ours(old, inner) {
		h.end(fmt.Errorf("%w: the record is not ours any more", ErrLost))
		return context.Cause(h.ctx)
	}
	next, err := l.newTerm()
	if err != nil {
		return err
	}
	next = l.notBefore(next, h.notBefore())
	h.mu.Lock()
	h.pending = &pending{written: newWritten(inner, next.data), term: next, known: make(chan struct{})}
	h.mu.Unlock()
	stat, err := l.write(c, inner, old, next.data)
	if err == nil || !unknown(err) {
		h.settled(stat, err == nil)
	}
	if err != nil {
		return err
	}
	if h.ctx.Err() != nil {
		return context.Cause(h.ctx)
	}
	return nil
}

// Release ends the hold and removes the record, if it is still ours, so that another can
// obtain the lease. If it was taken over from another handle or process with our identifier, which
// may be cut off and still rely on it, the record gets back the end that it had then. Call it once
// the work under [Held.Context] has returned. When ctx ends first, the error wraps the cause and the
// removal goes on in the background, until the lease has ended by itself. Calls after the first wait
// for the same.
func (h *Held) Release(ctx context.Context) error {
	h.release.Do(func() {
		letGo := h.lease.session.Hold()
		h.end(ErrReleased)
		go func() {
			defer close(h.gone)
			defer letGo()
			h.stays = h.removeRecord(context.WithoutCancel(ctx))
		}()
	})
	patience := hold.Outlive(ctx, ErrReleased)
	select {
	case <-h.gone:
	case <-patience.Done():
		select {
		case <-h.gone: // known, though late
		default:
			return h.lease.wrap("release", context.Cause(patience))
		}
	}
	if h.stays != nil {
		return h.lease.wrap("release", h.stays)
	}
	return nil
}

// removeRecord deletes the record if it is ours, or gives it back its earlier end, or waits until its time is over.
func (h *Held) removeRecord(life context.Context) error {
	l := h.lease
	life, cancel := context.WithTimeout(life, l.opts.Duration+l.opts.Skew)
	defer cancel()
	err := l.begin(life)
	if err == nil {
		err = l.locked(life, func(inner *lock.Held) error {
			record, old, err := l.read(life, inner.Incarnation())
			if err != nil || old == nil || !h.ours(old, inner) {
				return err
			}
			floor := h.notBefore()
			if !l.now().Before(floor) {
				return l.remove(life, inner, old)
			}
			if record.End.After(floor) {
				record.End = floor
				if _, err = l.write(&call{ctx: life, life: life}, inner, old, record.bytes()); err != nil {
					return err
				}
			}
			return h.doubted()
		})
		l.finish()
	}
	if life.Err() != nil {
		return nil
	}
	return err
}

// doubted returns an error if the record is left because it is not known whose it is.
func (h *Held) doubted() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.doubt {
		return nil
	}
	return fmt.Errorf("the record stays until %v: a renewal may have written it, or another of our identifier", h.floor)
}

// Detach ends the hold and leaves the record, which holds others off until its end: what
// kazoo's leases always do. A Release after it does nothing.
func (h *Held) Detach() {
	h.release.Do(func() {
		h.end(ErrReleased)
		close(h.gone)
	})
}
