package semaphore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/kielgo/kiel/internal/sabotage"
	"github.com/kielgo/kiel/session"
)

// Held is a lease that is ours, until its context ends.
type Held struct {
	lease   *lease
	inc     *session.Incarnation
	token   int64
	ctx     context.Context //nolint:containedctx // a hold is a lifetime
	end     context.CancelCauseFunc
	letGo   func() // lets the session close
	release sync.Once
}

// hold makes a hold of a lease. It returns nil when inc is not trusted any more, and
// errAgain when the znode is not there.
func hold(ctx context.Context, s *Semaphore, l *lease, inc *session.Incarnation) (*Held, error) {
	stat, w, err := l.look(ctx, inc)
	if errors.Is(err, ErrLost) {
		return nil, errAgain
	}
	if err != nil {
		return nil, err
	}
	if !inc.Trusted() {
		w.stop()
		return nil, nil
	}
	h := &Held{lease: l, inc: inc, token: stat.Czxid, letGo: s.session.Hold()}
	h.ctx, h.end = context.WithCancelCause(inc.Context())
	if l.off.Off(sabotage.KeepUntilReleased) {
		context.AfterFunc(inc.Context(), func() { l.abandon(ctx) })
	}
	go h.guard(w)
	return h, nil
}

// guard ends the hold when its znode disappears, or somebody changes the number of leases.
func (h *Held) guard(w watches) {
	for {
		select {
		case <-w.lease.C():
		case <-w.number.C():
		case <-h.ctx.Done():
		}
		w.stop()
		if h.ctx.Err() != nil {
			return
		}
		stat, next, err := h.lease.look(h.ctx, h.inc)
		if err == nil && stat.Czxid != h.token {
			next.stop()
			err = fmt.Errorf("%w: %s is another's", ErrLost, h.lease.path)
		}
		switch {
		case err == nil:
			w = next
		case errors.Is(err, ErrLost) || errors.Is(err, ErrMaxLeases):
			h.end(err)
			return
		default: // also when the hold has ended
			h.end(fmt.Errorf("%w: can't look after %s: %w", ErrLost, h.lease.path, err))
			return
		}
	}
}

// Context is the lease: it ends when it can't be trusted to be ours any more. Its cause is
// ErrLost, ErrMaxLeases, ErrReleased, or that of the incarnation. It is not derived from Acquire's
// context.
func (h *Held) Context() context.Context { return h.ctx }

// Valid reports whether the lease may be relied on at this moment: its context has not ended,
// and the session is trusted. It costs nanoseconds: call it right before each effect.
func (h *Held) Valid() bool { return h.ctx.Err() == nil && h.inc.Trusted() }

// Node returns the path of our lease. A write that must not happen after the lease went to
// another carries session.CheckOp(Node(), -1) in its Multi.
func (h *Held) Node() string { return h.lease.path }

// Token returns a number that is larger than that of every lease made before: the czxid of
// ours.
func (h *Held) Token() int64 { return h.token }

// Incarnation returns the incarnation in which the lease is held.
func (h *Held) Incarnation() *session.Incarnation { return h.inc }

// Release ends the lease and removes its znode. Call it once the work under [Held.Context]
// has returned, also when the lease was lost. It returns nil when the znode is proved gone,
// or its session is over: expired, or ended with the session's Run, after which it is gone
// within one session timeout. When ctx ends first, the error wraps the cause and the removal
// goes on in the background. Calls after the first wait for the same.
func (h *Held) Release(ctx context.Context) error {
	h.release.Do(func() {
		h.end(ErrReleased)
		h.lease.abandon(ctx)
		h.letGo()
	})
	select {
	case <-h.lease.gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("semaphore: release %s: %w", h.lease.path, context.Cause(ctx))
	}
}
