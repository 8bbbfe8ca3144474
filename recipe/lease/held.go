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
	unknown *term     // the term of a renewal that is under way, or whose outcome is unknown; else nil

	removal *hold.Removal // of the record
}

// hold returns the hold of a term whose record was written in inc. The hold's context has the values of the session's contexts,
// as those of other holds, and not of Obtain's: the hold may outlast the function that has called Obtain, and the holds under
// which that runs.
func (l *NonBlockingLease) hold(inc *session.Incarnation, t term, floor time.Time) *Held {
	h := &Held{lease: l, token: t.stat.Mzxid, floor: floor, term: t, removal: hold.NewRemoval()}
	h.ctx, h.end = context.WithCancelCause(context.WithoutCancel(inc.Context()))
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
		watch, err := h.check()
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
		case <-h.ctx.Done():
			watch.Stop()
			return
		}
	}
}

// check reads the record and sets a watch on it. The server of a new session may be behind, so check believes that the record is
// another one only after a Sync.
func (h *Held) check() (*session.Watch, error) {
	inc, err := h.lease.session.Incarnation(h.ctx)
	if err != nil {
		return nil, h.unseen(err)
	}
	for synced := false; ; synced = true {
		data, stat, watch, err := inc.GetW(h.ctx, h.lease.node)
		switch {
		case errors.Is(err, session.ErrSessionExpired):
			return nil, err
		case err == nil && h.mayBe(&stored{stat, data}):
			return watch, nil
		case err == nil:
			watch.Stop()
			err = fmt.Errorf("%w: the record is now %.200q", ErrLost, data)
		case errors.Is(err, session.ErrNoNode):
			err = fmt.Errorf("%w: the record was removed", ErrLost)
		default:
			return nil, h.unseen(err)
		}
		if synced {
			return nil, err
		}
		if err := inc.Sync(h.ctx, h.lease.node); err != nil && !errors.Is(err, session.ErrNoNode) {
			if errors.Is(err, session.ErrSessionExpired) {
				return nil, err
			}
			return nil, h.unseen(err)
		}
	}
}

// unseen returns the cause of a hold whose record can't be watched because of err.
func (h *Held) unseen(err error) error {
	return operr.Because(ErrLost, operr.New("", "watch", h.lease.node, err))
}

// mayBe reports whether the hold may have written a record: its last write surely has, or a renewal of unknown outcome can have.
func (h *Held) mayBe(old *stored) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.same(old.Stat) || h.sent(old)
}

// same reports whether the hold's last write has written the znode. The version does not tell: it begins anew when somebody
// deletes the record and creates it again. The caller holds mu.
func (h *Held) same(stat session.Stat) bool {
	return stat.Czxid == h.term.stat.Czxid && stat.Mzxid == h.term.stat.Mzxid
}

// sent reports whether a record has the bytes that a renewal of unknown outcome has sent. The caller holds mu.
func (h *Held) sent(old *stored) bool {
	return h.unknown != nil && bytes.Equal(old.data, h.unknown.data)
}

// ours reports whether this hold may have written a record, which was read under an inner lock. If a renewal of unknown outcome
// can have written the record, so can another of the identifier, since ends have full seconds. The hold takes the record over
// then: somebody may rely on the record, so the record keeps its end, and the hold lasts no longer than before.
func (h *Held) ours(old *stored) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	known, sent := h.same(old.Stat), h.sent(old)
	if !known && sent {
		h.term.stat = old.Stat
		if h.unknown.end.After(h.floor) {
			h.floor = h.unknown.end
		}
	}
	h.unknown = nil
	return known || sent
}

// extending notes a renewal before it is sent.
func (h *Held) extending(next term) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unknown = &next
}

// extended notes how a renewal has ended: with the metadata of the record, or with err.
func (h *Held) extended(next term, stat session.Stat, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		h.term = next
		h.term.stat = stat
	}
	if !errors.Is(err, session.ErrUncertain) {
		h.unknown = nil
	}
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
// Renew does not shorten the lease when the clock was set back. When Renew fails, the hold lasts as long as before, unless its
// context has ended: then the error wraps the cause. An error that wraps session.ErrUncertain says that the record may have been
// extended; the hold is not. The next Renew extends the hold.
func (h *Held) Renew(ctx context.Context) error {
	l := h.lease
	if err := l.inTurn(ctx, func(inner *lock.Held) error { return l.renew(ctx, inner, h) }); err != nil {
		return l.wrap(ctx, "renew", err)
	}
	return nil
}

// renew extends a hold, under the inner lock.
func (l *NonBlockingLease) renew(ctx context.Context, inner *lock.Held, h *Held) error {
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
	case !h.ours(old):
		h.end(fmt.Errorf("%w: another handle or process has written the record", ErrLost))
		return context.Cause(h.ctx)
	}
	next, err := l.newTerm()
	if err != nil {
		return err
	}
	next = l.notBefore(l.notBefore(next, h.notBefore()), h.End()) // the hold relies on its end until the outcome is known
	h.extending(next)
	stat, err := l.write(ctx, inner, old, next.data)
	h.extended(next, stat, err)
	if err != nil {
		return err
	}
	return context.Cause(h.ctx)
}

// Release ends the hold and removes the record if it is still this hold's, so that another can obtain the lease. If the lease was
// taken over from another handle or process with the same identifier, which may be cut off and still rely on it, the record gets
// back the end that it had then. The same is so for an end that a call of unknown outcome may have written. Call Release when the
// work under [Held.Context] has returned. When ctx ends first, the error wraps the cause and the removal goes on in the
// background, until the lease has ended by itself. A refusal by the servers, by an ACL for instance, is logged and tried again,
// after pauses that grow to 5 s. Calls after the first wait for the same removal.
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
	life, cancel := context.WithDeadline(life, time.Now().Add(l.opts.Duration).Add(l.opts.Skew)) // the sum alone may overflow
	defer cancel()
	err := l.begin(life)
	if err == nil {
		err = l.insist(life, func(inner *lock.Held) error {
			record, old, err := l.read(life, inner.Incarnation())
			if err != nil || old == nil || !h.ours(old) {
				return err
			}
			floor := h.notBefore()
			if !l.now().Before(floor) {
				return l.remove(life, inner, old)
			}
			if !record.End.After(floor) {
				return nil
			}
			record.End = floor
			_, err = l.write(life, inner, old, record.bytes())
			return err
		})
		l.finish()
	}
	if life.Err() != nil {
		return nil
	}
	return err
}

// Detach ends the hold and leaves the record, which blocks others until its end, as with kazoo's leases. A Release after Detach
// does nothing.
func (h *Held) Detach() {
	h.removal.Vanished() // first, or the end of the hold lets another goroutine release it
	h.end(ErrReleased)
}
