package lock

import (
	"context"
	"errors"
	"fmt"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/session"
)

// Held is a lock that is ours, until its context ends.
type Held struct {
	hold *hold.Hold
	node *seqnode.Node
}

// hold makes a hold of a node that was seen to be first in inc. It returns nil when
// inc is not trusted any more, and seqnode.ErrGone when the node is not there.
func (l *Lock) hold(ctx context.Context, n *seqnode.Node, inc *session.Incarnation) (*Held, error) {
	base, err := hold.New(ctx, hold.Options{
		Session: l.session, Incarnation: inc, Path: n.Path(), Lasting: l.opts.Persistent, Lost: ErrLost,
	})
	if errors.Is(err, hold.ErrGone) {
		err = seqnode.ErrGone
	}
	if base == nil || err != nil {
		return nil, err
	}
	return &Held{hold: base, node: n}, nil
}

// Context is the hold: it ends when the lock can't be trusted to be ours any more.
// Its cause is ErrLost, ErrReleased, or that of the incarnation. It is not derived
// from Acquire's context. That of a persistent contender ends with ErrLost, ErrReleased,
// or, when Run has ended and nobody looks after it any more, ErrLost and session.ErrClosed.
func (h *Held) Context() context.Context { return h.hold.Context() }

// Valid reports whether the hold may be relied on at this moment: its context has not
// ended, and the session is trusted, unless the contender is persistent. It costs
// nanoseconds: call it right before each effect.
func (h *Held) Valid() bool { return h.hold.Valid() }

// Node returns the path of our contender. A write that must not happen after the
// lock went to another carries session.CheckOp(Node(), -1) in its Multi.
func (h *Held) Node() string { return h.hold.Node() }

// Token returns a number that is larger than that of every holder before: the czxid
// of our contender.
func (h *Held) Token() int64 { return h.hold.Token() }

// Incarnation returns the incarnation in which the lock is held, for a persistent
// contender that in which it was acquired.
func (h *Held) Incarnation() *session.Incarnation { return h.hold.Incarnation() }

// Release ends the hold and removes our contender. Call it once the work under
// [Held.Context] has returned, also when the hold was lost. It returns nil when the
// contender is proved gone, or its session is over: expired, or ended with the session's
// Run, after which it is gone within one session timeout. When ctx ends first, the error
// wraps the cause and the removal goes on in the background. Calls after the first
// wait for the same. The removal of a persistent contender goes on until Run ends; the
// error wraps session.ErrClosed if the contender stands then.
func (h *Held) Release(ctx context.Context) error {
	h.hold.Release(ErrReleased, func() { h.node.Abandon(ctx) }) // the node keeps the session itself where that matters
	if err := h.node.Remove(hold.Outlive(ctx, ErrReleased)); err != nil {
		return fmt.Errorf("lock: release %s: %w", h.node.Path(), err)
	}
	return nil
}
