package lease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kielgo/kiel/internal/sabotage"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

// lookAtClock is how often the wall clock is compared with a lease's end. (The monotonic clock
// needs no looking.)
const lookAtClock = time.Second

// Held is a lease that is ours, until its context ends.
type Held struct {
	lease *NonBlockingLease
	off   sabotage.Rules
	token int64
	floor time.Time       // others of our identifier may rely on the lease until then
	ctx   context.Context //nolint:containedctx // a hold is a lifetime
	end   context.CancelCauseFunc

	mu      sync.Mutex
	term    term
	pending *term // what a renewal has sent, until it is known what became of it

	release sync.Once
	gone    chan struct{} // closed when the record is gone, or is to stay
	stays   error         // set before: why it may stand
}

// hold makes a hold of a try that has succeeded.
func (l *NonBlockingLease) hold(ctx context.Context, t try) *Held {
	h := &Held{
		lease: l, off: sabotage.Of(ctx), token: t.term.stat.Mzxid, floor: t.floor, term: t.term, gone: make(chan struct{}),
	}
	life := context.WithoutCancel(ctx)
	if h.off.Off(sabotage.LeaseOutlivesTrust) {
		life = l.session.Current().Context()
	}
	h.ctx, h.end = context.WithCancelCause(life)
	go h.expire(l.session.Hold())
	if !h.off.Off(sabotage.RecordWatched) {
		go h.guard()
	}
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

// check reads the record. A server to which we came with a new session may be behind, so
// before it is believed that the record is another one it must catch up.
func (h *Held) check() (*session.Watch, error) {
	inc, err := h.lease.session.Incarnation(h.ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: can't look after %s: %w", ErrLost, h.lease.node, err)
	}
	for synced := false; ; synced = true {
		data, stat, watch, err := inc.GetW(h.ctx, h.lease.node)
		switch {
		case errors.Is(err, session.ErrSessionExpired):
			return nil, err
		case err == nil && h.ours(data, stat):
			return watch, nil
		case err == nil:
			watch.Stop()
			err = fmt.Errorf("%w: the record is now %.200q", ErrLost, data)
		case errors.Is(err, session.ErrNoNode):
			err = fmt.Errorf("%w: the record was removed", ErrLost)
		default:
			return nil, fmt.Errorf("%w: can't look after %s: %w", ErrLost, h.lease.node, err)
		}
		if synced {
			return nil, err
		}
		if err := inc.Sync(h.ctx, h.lease.node); err != nil && !errors.Is(err, session.ErrNoNode) {
			if errors.Is(err, session.ErrSessionExpired) {
				return nil, err
			}
			return nil, fmt.Errorf("%w: can't look after %s: %w", ErrLost, h.lease.node, err)
		}
	}
}

// ours reports whether a znode is what we wrote last. A version is no identity: who deletes
// the record and makes it anew begins at the same one.
func (h *Held) ours(data []byte, stat session.Stat) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if stat.Czxid == h.term.stat.Czxid && stat.Mzxid == h.term.stat.Mzxid {
		return true
	}
	if h.off.Off(sabotage.RecordByZxid) && stat.Version == h.term.stat.Version {
		return true
	}
	if h.pending == nil || !bytes.Equal(data, h.pending.data) {
		return false
	}
	h.adopt(*h.pending, stat)
	return true
}

// adopt goes over to a new term. It needs mu.
func (h *Held) adopt(t term, stat session.Stat) {
	t.stat = stat
	h.term, h.pending = t, nil
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
	err := h.lease.begin(ctx)
	if err == nil {
		err = h.lease.renew(ctx, h)
		h.lease.finish()
	}
	if err != nil {
		return h.lease.wrap("renew", err)
	}
	return nil
}

func (l *NonBlockingLease) renew(ctx context.Context, h *Held) error {
	return l.locked(ctx, func(inner *lock.Held) error {
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
		if old == nil || !h.ours(old.data, old.Stat) {
			h.end(fmt.Errorf("%w: the record is not ours any more", ErrLost))
			return context.Cause(h.ctx)
		}
		next, err := l.newTerm(ctx)
		if err != nil {
			return err
		}
		next = l.notBefore(ctx, next, h.floor)
		h.mu.Lock()
		h.pending = &next
		h.mu.Unlock()
		stat, err := l.write(ctx, inner, old, next.data)
		if err != nil {
			return err
		}
		h.mu.Lock()
		h.adopt(next, stat)
		h.mu.Unlock()
		if h.ctx.Err() != nil {
			return context.Cause(h.ctx)
		}
		return nil
	})
}

// Release ends the hold and removes the record, if it is still ours, so that another can
// obtain the lease. If it was taken over from another handle or process with our identifier, which
// may be cut off and still rely on it, the record gets back the end that it had then. Call it once the work under [Held.Context] has returned. When ctx ends first,
// the error wraps the cause and the removal goes on in the background, until the lease has
// ended by itself. Calls after the first wait for the same.
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
	select {
	case <-h.gone:
	case <-ctx.Done():
		select {
		case <-h.gone: // known, though late
		default:
			return h.lease.wrap("release", context.Cause(ctx))
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
			if err != nil || old == nil || !h.ours(old.data, old.Stat) {
				return err
			}
			if !l.now().Before(h.floor) {
				return l.remove(life, inner, old)
			}
			if record.End.After(h.floor) {
				record.End = h.floor
				_, err = l.write(life, inner, old, record.bytes())
			}
			return err
		})
		l.finish()
	}
	if life.Err() != nil {
		return nil
	}
	return err
}

// Detach ends the hold and leaves the record, which holds others off until its end: what
// kazoo's leases always do. A Release after it does nothing.
func (h *Held) Detach() {
	h.release.Do(func() {
		h.end(ErrReleased)
		close(h.gone)
	})
}
