package session

import (
	"context"
	"sync/atomic"
	"time"
)

// Incarnation is one unbroken stretch of trust in one ZooKeeper session. Whatever is true only because of the session must live
// under the incarnation's Context, and each effect that relies on it must be preceded by Trusted.
//
// The operations of an incarnation never run in another ZooKeeper session. They go on working after trust has ended, for as long
// as that session lives, so that what it holds can be released. When the session is over they return ErrSessionExpired or
// ErrClosed. Every method may be called from any goroutine.
type Incarnation struct {
	c       *client
	number  uint64          // from 1, in the order of incarnations of the Session
	id      int64           // of the ZooKeeper session
	history uint64          // what History returns
	ctx     context.Context //nolint:containedctx // the incarnation's lifetime
	cancel  context.CancelCauseFunc
	window  atomic.Pointer[window]
}

// window says until when an incarnation may be trusted. A window that is over never changes again.
type window struct {
	end   instant   // when trust ends unless it is extended
	over  bool      // trust has ended
	ended time.Time // when over: when trust ended
}

func newIncarnation(ctx context.Context, c *client, number, history uint64, end instant) *Incarnation {
	i := &Incarnation{c: c, number: number, history: history, id: c.id.Load()}
	i.ctx, i.cancel = context.WithCancelCause(ctx)
	i.window.Store(&window{end: end})
	return i
}

// Context ends, with cause ErrTrustLost, ErrSessionExpired or ErrClosed, a moment after trust has.
func (i *Incarnation) Context() context.Context { return i.ctx }

// Number returns the number of the incarnation in its Session, from 1.
func (i *Incarnation) Number() uint64 { return i.number }

// SessionID returns the ZooKeeper session's id, which is the EphemeralOwner of the znodes that the session creates.
func (i *Incarnation) SessionID() int64 { return i.id }

// History returns a number that changes when the servers may have lost data since the incarnation before: in a new ZooKeeper
// session, and in the same session after the servers refused it for so long that they may have come back with older data. Then
// zxids and versions remembered from before are worth nothing: the servers give the same numbers again, to other data. No client
// can see that a server was restored to its state of a moment ago if others have since written more than was lost.
func (i *Incarnation) History() uint64 { return i.history }

// LeaderEpoch returns the leader's epoch as of the newest answer of the servers: the upper half of its zxid. Each election of a
// leader changes it. An ensemble that was restored from a backup has elected a leader, too, and may accept its clients as if
// nothing had happened, with the same History. A single server never changes its epoch.
func (i *Incarnation) LeaderEpoch() int64 { return i.c.leaderEpoch.Load() }

// Timeout returns the ZooKeeper session's timeout as granted last.
func (i *Incarnation) Timeout() time.Duration { return i.c.timeout() }

// Trusted reports whether the incarnation may be trusted at this moment, by the monotonic and the wall clock. It costs
// nanoseconds: call it right before each effect. Once false it stays false.
func (i *Incarnation) Trusted() bool {
	_, trusted := i.TrustedAt()
	return trusted
}

// TrustedAt is Trusted, and also returns the moment for which the answer holds: the time since the Session was made, by the
// monotonic clock. A frequent caller can measure time with it at no further cost. at is 0 when trusted is false.
func (i *Incarnation) TrustedAt() (at time.Duration, trusted bool) {
	for {
		w := i.window.Load()
		if w.over {
			return 0, false
		}
		now := i.c.s.now()
		if !w.end.reached(now) {
			return now.mono, true
		}
		if i.lapse(w) {
			i.c.s.nudge()
			return 0, false
		}
	}
}

// TrustEnd returns until when the incarnation may be trusted, as far as is known now; once trust has ended, when it ended.
func (i *Incarnation) TrustEnd() time.Time {
	w := i.window.Load()
	if w.over {
		return w.ended
	}
	return i.c.s.now.timeOf(w.end)
}

// lapse replaces w, whose time has run out, by a window that is over. It returns false if w is not the window any more.
func (i *Incarnation) lapse(w *window) bool {
	return i.window.CompareAndSwap(w, &window{end: w.end, over: true, ended: i.c.s.now.timeOf(w.end)})
}

// extend moves the end of the window, which may also come nearer. It returns false if trust has ended before: an incarnation that
// was not trusted once is never trusted again.
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

// finish ends trust now, unless it has ended before, and then ends the incarnation's context with cause.
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
