package semaphore

import (
	"context"
	"fmt"
	"sync"

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
	exists, stat, watch, err := inc.ExistsW(ctx, l.path)
	if err != nil {
		return nil, err
	}
	if !exists {
		watch.Stop()
		return nil, errAgain
	}
	if !inc.Trusted() {
		watch.Stop()
		return nil, nil
	}
	h := &Held{lease: l, inc: inc, token: stat.Czxid, letGo: s.session.Hold()}
	h.ctx, h.end = context.WithCancelCause(inc.Context())
	go h.guard(watch)
	return h, nil
}

// guard ends the hold when its znode disappears.
func (h *Held) guard(watch *session.Watch) {
	for {
		select {
		case <-watch.C():
		case <-h.ctx.Done():
			watch.Stop()
			return
		}
		exists, stat, next, err := h.inc.ExistsW(h.ctx, h.lease.path)
		switch {
		case h.ctx.Err() != nil:
			return
		case err != nil:
			h.end(fmt.Errorf("%w: can't look after %s: %w", ErrLost, h.lease.path, err))
			return
		case !exists || stat.Czxid != h.token:
			next.Stop()
			h.end(fmt.Errorf("%w: %s", ErrLost, h.lease.path))
			return
		}
		watch = next
	}
}

// Context is the lease: it ends when it can't be trusted to be ours any more. Its cause is
// ErrLost, ErrReleased, or that of the incarnation. It is not derived from Acquire's
// context.
func (h *Held) Context() context.Context { return h.ctx }

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
// or its session is over. When ctx ends first, the error wraps the cause and the removal
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
