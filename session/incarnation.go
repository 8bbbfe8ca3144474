package session

import (
	"context"
	"sync/atomic"
	"time"
)

// Incarnation is one unbroken stretch of trust in one ZooKeeper session. What was true because of the session is to be
// held under its Context, and checked with Trusted right before each effect.
//
// Its operations are bound to the ZooKeeper session: they never run in another one. They go on working after trust has
// ended for as long as that session lives, so that what it holds can be released, and end with ErrSessionExpired, or
// ErrClosed, when it is over. Every method may be called from any goroutine.
type Incarnation struct {
	c      *client
	number uint64
	id     int64 // of the ZooKeeper session
	past   uint64
	ctx    context.Context //nolint:containedctx // an incarnation is a lifetime
	cancel context.CancelCauseFunc
	window atomic.Pointer[window]
}

// window is until when an incarnation may be trusted. Once over it never changes again.
type window struct {
	end   instant
	over  bool
	ended time.Time // when over: when trust ended
}

func newIncarnation(ctx context.Context, c *client, number, past uint64, end instant) *Incarnation {
	i := &Incarnation{c: c, number: number, past: past, id: c.id.Load()}
	i.ctx, i.cancel = context.WithCancelCause(ctx)
	i.window.Store(&window{end: end})
	return i
}

// Context ends, with cause ErrTrustLost, ErrSessionExpired or ErrClosed, a moment after trust has.
func (i *Incarnation) Context() context.Context { return i.ctx }

// Number grows by one from incarnation to incarnation of a Session.
func (i *Incarnation) Number() uint64 { return i.number }

// SessionID is the ZooKeeper session's id: the EphemeralOwner of what it creates.
func (i *Incarnation) SessionID() int64 { return i.id }

// History is the same for incarnations between which nothing says that the servers lost what they held. It differs in a new
// ZooKeeper session, and in the same one after the servers did not let us in for so long that they may have come back with
// older data. What was remembered by a zxid or a version is then worth nothing: they come again, and may name something else.
// What no client can see is a server restored to a moment ago on which others have since written more than was lost.
func (i *Incarnation) History() uint64 { return i.past }

// LeaderEpoch is the epoch of the newest answer of the servers: the upper half of its zxid. Each election of a leader changes it.
// An ensemble that was restored from a backup has elected one, too, and may let its clients in as if nothing had happened,
// with the same History. A single server never changes its epoch.
func (i *Incarnation) LeaderEpoch() int64 { return i.c.epoch.Load() }

// Timeout is the ZooKeeper session's timeout as granted last.
func (i *Incarnation) Timeout() time.Duration { return i.c.timeout() }

// Trusted reports whether the incarnation may be trusted at this moment, by the monotonic and the wall clock. It costs
// nanoseconds: call it right before each effect. Once false it stays false.
func (i *Incarnation) Trusted() bool {
	for {
		w := i.window.Load()
		if w.over {
			return false
		}
		if !w.end.reached(i.c.s.now()) {
			return true
		}
		if i.lapse(w) {
			i.c.s.nudge()
			return false
		}
	}
}

// TrustEnd is the moment until which the incarnation may be trusted as known now; after its end, when it ended.
func (i *Incarnation) TrustEnd() time.Time {
	w := i.window.Load()
	if w.over {
		return w.ended
	}
	return i.c.s.now.timeOf(w.end)
}

// lapse ends a window that has run out.
func (i *Incarnation) lapse(w *window) bool {
	return i.window.CompareAndSwap(w, &window{end: w.end, over: true, ended: i.c.s.now.timeOf(w.end)})
}

// extend moves the window's end, which may also come nearer. It returns false if the window has run out before: what
// was once not trusted is not trusted again.
func (i *Incarnation) extend(end instant) bool {
	for {
		w := i.window.Load()
		switch {
		case w.over:
			return false
		case w.end.reached(i.c.s.now()):
			i.lapse(w)
		case i.window.CompareAndSwap(w, &window{end: end}):
			return true
		}
	}
}

// finish ends the incarnation now, unless its window has run out before, and then its context.
func (i *Incarnation) finish(cause error) {
	for {
		w := i.window.Load()
		if w.over {
			break
		}
		now := i.c.s.now()
		if w.end.reached(now) {
			i.lapse(w)
		} else if i.window.CompareAndSwap(w, &window{end: w.end, over: true, ended: i.c.s.now.timeOf(now)}) {
			break
		}
	}
	i.cancel(cause)
}
