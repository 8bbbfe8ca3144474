package semaphore

import (
	"context"
	"errors"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/session"
)

// Held is a lease that this handle has until its context ends.
type Held struct {
	hold  *hold.Hold
	lease *lease
}

// hold returns the hold of a lease, nil if inc is not trusted any more, and errAgain if the znode is gone.
func (s *Semaphore) hold(ctx context.Context, l *lease, inc *session.Incarnation) (*Held, error) {
	number, err := l.watchNumber(ctx, inc)
	if errors.Is(err, session.ErrNoNode) {
		return nil, errAgain
	}
	if err != nil {
		return nil, err
	}
	base, err := hold.New(ctx, hold.Options{Session: s.session, Incarnation: inc, Path: l.path, Lost: ErrLost})
	if base == nil || err != nil {
		number.Stop()
		if errors.Is(err, hold.ErrGone) {
			err = errAgain
		}
		return nil, err
	}
	base.Guard(number, func(ctx context.Context) (*session.Watch, error) {
		number, err := l.watchNumber(ctx, inc)
		if err != nil && !errors.Is(err, ErrMaxLeases) {
			err = base.Unseen(err)
		}
		return number, err
	})
	return &Held{hold: base, lease: l}, nil
}

// Context returns the context that ends when the lease can't be trusted to be this handle's any more. Its cause wraps ErrLost,
// ErrMaxLeases, ErrReleased, or the cause of the incarnation. It is not derived from Acquire's context.
func (h *Held) Context() context.Context { return h.hold.Context() }

// Valid reports whether the lease may be relied on at this moment: its context has not ended, and the session is trusted. It
// costs nanoseconds: call it right before each effect.
func (h *Held) Valid() bool { return h.hold.Valid() }

// Node returns the path of the lease's znode. A write that must not happen after the lease went to another contains
// session.CheckOp(Node(), -1) in its Multi.
func (h *Held) Node() string { return h.hold.Node() }

// Token returns a number that is larger than the tokens of all leases taken before: the czxid of the lease's znode.
func (h *Held) Token() int64 { return h.hold.Token() }

// Incarnation returns the incarnation in which the lease was acquired. The hold ends with it.
func (h *Held) Incarnation() *session.Incarnation { return h.hold.Incarnation() }

// Release ends the lease and removes its znode. Call it when the work under [Held.Context] has returned, also when the lease was
// lost. Release returns nil when the znode is proved gone or its session is over: expired, or ended with the session's Run, after
// which the znode is gone within one session timeout. When ctx ends first, the error wraps the cause and the removal goes on in
// the background. Calls after the first wait for the same removal.
func (h *Held) Release(ctx context.Context) error {
	h.hold.Release(ErrReleased, func() { h.lease.own.Abandon(ctx) })
	if err := h.lease.own.Wait(hold.Outlive(ctx, ErrReleased)); err != nil {
		return operr.New("semaphore", "release", h.lease.path, err)
	}
	return nil
}
