package lease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

// lookAtClock is the time between comparisons of the wall clock with a lease's end. A timer follows the monotonic clock by
// itself.
const lookAtClock = time.Second

// Held is a lease that this process holds until its context ends.
type Held struct {
	lease *NonBlockingLease
	token int64
	ctx   context.Context //nolint:containedctx // a hold is a lifetime
	end   context.CancelCauseFunc

	mu      sync.Mutex
	term    term
	floor   time.Time // until when others of the handle's identifier may rely on the lease
	doubt   bool      // the record may have been written by another of the identifier
	pending *pending  // a renewal whose outcome is unknown, or nil

	removal *hold.Removal // of the record
}

// pending is a renewal whose outcome is unknown.
type pending struct {
	written

	term  term          // the term of the hold if the renewal was done
	known chan struct{} // closed when the outcome is known, or given up
}

// hold returns the hold of a try that has succeeded. The hold's context has the values of the session's contexts, as those of
// other holds, and not of Obtain's: the hold may outlast the function that has called Obtain, and the holds under which that
// runs.
func (l *NonBlockingLease) hold(t try) *Held {
	h := &Held{
		lease: l, token: t.term.stat.Mzxid, floor: t.floor, term: t.term, removal: hold.NewRemoval(),
	}
	h.ctx, h.end = context.WithCancelCause(context.WithoutCancel(t.inc.Context()))
	go h.expire(l.session.KeepOpen())
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

// guard ends the hold when the record is not the one that this hold has written any more.
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

// check reads the record and sets a watch on it. The server of a new session may be behind, so check believes that the record is
// another one only after a Sync. If a renewal whose outcome is unknown may have written the record, known is closed with the
// outcome.
func (h *Held) check() (watch *session.Watch, known <-chan struct{}, err error) {
	inc, err := h.lease.session.Incarnation(h.ctx)
	if err != nil {
		return nil, nil, h.unseen(err)
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
			return nil, nil, h.unseen(err)
		}
		if synced {
			return nil, nil, err
		}
		if err := inc.Sync(h.ctx, h.lease.node); err != nil && !errors.Is(err, session.ErrNoNode) {
			if errors.Is(err, session.ErrSessionExpired) {
				return nil, nil, err
			}
			return nil, nil, h.unseen(err)
		}
	}
}

// unseen returns the cause of a hold whose record can't be watched because of err.
func (h *Held) unseen(err error) error {
	return operr.Because(ErrLost, operr.New("", "watch", h.lease.node, err))
}

// knows reports whether the hold's last write has written the znode. The version does not tell: it begins anew when somebody
// deletes the record and creates it again.
func (h *Held) knows(stat session.Stat) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.same(stat)
}

// same is knows for callers that hold mu.
func (h *Held) same(stat session.Stat) bool {
	return stat.Czxid == h.term.stat.Czxid && stat.Mzxid == h.term.stat.Mzxid
}

// mayBe returns pending.known if a pending renewal may have written the record, and nil otherwise.
func (h *Held) mayBe(data []byte) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pending == nil || !bytes.Equal(data, h.pending.data) {
		return nil
	}
	return h.pending.known
}

// ours reports whether this hold has written a record, which was read under an inner lock. It also settles a pending renewal,
// whose contender is gone. If the renewal's outcome can't be verified, the hold takes the record over: somebody may rely on the
// record, so the record keeps its end, and the hold lasts no longer than before.
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

// settled ends the pending renewal with its outcome.
func (h *Held) settled(stat session.Stat, done bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if done {
		h.adopt(h.pending.term, stat)
	}
	h.drop()
}

// open reports whether there is a pending renewal.
func (h *Held) open() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pending != nil
}

// forget drops the pending renewal, if any.
func (h *Held) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pending != nil {
		h.drop()
	}
}

// drop ends the pending renewal. The caller holds mu.
func (h *Held) drop() {
	close(h.pending.known)
	h.pending = nil
}

// adopt makes t, whose record has this metadata, the hold's term. The caller holds mu.
func (h *Held) adopt(t term, stat session.Stat) {
	t.stat = stat
	h.term = t
}

// notBefore returns until when others of the handle's identifier may rely on the lease.
func (h *Held) notBefore() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.floor
}

// Context returns the context that ends when the lease can't be relied on any more. Its cause wraps ErrExpired, ErrLost or
// ErrReleased. It is not derived from Obtain's context.
func (h *Held) Context() context.Context { return h.ctx }

// Valid reports whether the hold may be relied on at this moment, by both clocks.
func (h *Held) Valid() bool { return h.ctx.Err() == nil && h.left() > 0 }

// End returns the end of the lease as written, until which the lease blocks others. The context ends earlier by Options.Skew.
func (h *Held) End() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.term.end
}

// Node returns the path of the record.
func (h *Held) Node() string { return h.lease.node }

// Path returns the path of the lease, or of the slot.
func (h *Held) Path() string { return h.lease.path }

// Token returns a number that is larger than the tokens of all holds before: the mzxid of the record when the lease was obtained.
// Renewals don't change it.
func (h *Held) Token() int64 { return h.token }

// Renew extends the lease to Options.Duration from now, or to the end of a lease that Obtain has taken over, whichever is later.
// When Renew fails, the hold lasts as long as before, unless its context has ended: then the error wraps the cause. An error that
// wraps session.ErrUncertain says that the record may have been extended; if it was, the hold is extended, too, as soon as that
// is known.
func (h *Held) Renew(ctx context.Context) error {
	l := h.lease
	err := l.carry(ctx, func(c *call, inner *lock.Held) error { return l.renew(c, inner, h) },
		func() {},
		func(life context.Context) { l.sortOut(life, h) })
	if err != nil {
		return l.wrap(ctx, "renew", err)
	}
	return nil
}

// renew extends a hold, under the inner lock.
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
	switch {
	case old == nil:
		h.end(fmt.Errorf("%w: the record was removed", ErrLost))
		return context.Cause(h.ctx)
	case !h.ours(old, inner):
		h.end(fmt.Errorf("%w: another handle or process has written the record", ErrLost))
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

// Release ends the hold and removes the record if it is still this hold's, so that another can obtain the lease. If the lease was
// taken over from another handle or process with the same identifier, which may be cut off and still rely on it, the record gets
// back the end that it had then. Call Release when the work under [Held.Context] has returned. When ctx ends first, the error
// wraps the cause and the removal goes on in the background, until the lease has ended by itself. A refusal by the servers, by an
// ACL for instance, is logged and tried again, after pauses that grow to 5 s. Calls after the first wait for the same removal.
func (h *Held) Release(ctx context.Context) error {
	letGo := h.lease.session.KeepOpen() // from before the end of the hold, which the record must outlast
	h.end(ErrReleased)
	h.removal.Start(ctx, h.lease.session, h.removeRecord)
	letGo()
	patience := hold.Outlive(ctx, ErrReleased)
	if err := h.removal.Wait(patience); err != nil {
		return h.lease.wrap(patience, "release", err)
	}
	return nil
}

// removeRecord deletes the record if it is this hold's, or gives it back its earlier end. It gives up when the lease has ended.
func (h *Held) removeRecord(life context.Context) error {
	l := h.lease
	life, cancel := context.WithTimeout(life, l.opts.Duration+l.opts.Skew)
	defer cancel()
	err := l.begin(life)
	if err == nil {
		err = l.insist(life, func(inner *lock.Held) error {
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

// doubted returns an error if the record stays because its owner is unknown.
func (h *Held) doubted() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.doubt {
		return nil
	}
	return fmt.Errorf("the record stays until %v: either a renewal of this hold or another process with its identifier has written it", h.floor)
}

// Detach ends the hold and leaves the record, which blocks others until its end, as with kazoo's leases. A Release after Detach
// does nothing.
func (h *Held) Detach() {
	h.removal.Vanished() // first, or the end of the hold lets another goroutine release it
	h.end(ErrReleased)
}
