package lock

import (
	"context"
	"errors"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/session"
)

// Held is a hold on a lock, which nobody else has until the context of the hold ends.
type Held struct {
	hold *hold.Hold
	node *seqnode.Node
}

// hold returns a hold with node n, which was seen to be first in inc. It returns nil if inc is not trusted any more, and
// seqnode.ErrGone if the node does not exist.
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

// Context returns the context that ends when the lock can't be trusted to be this handle's any more. Its cause wraps ErrLost,
// ErrReleased, or the cause of the incarnation. It is not derived from Acquire's context. With a persistent contender the cause
// wraps ErrLost or ErrReleased; when the session's Run has ended and the contender can't be watched any more, it wraps ErrLost
// and session.ErrClosed.
func (h *Held) Context() context.Context { return h.hold.Context() }

// Valid reports whether the hold may be relied on at this moment: its context has not ended, and the session is trusted or the
// contender is persistent. It costs nanoseconds: call it right before each effect.
func (h *Held) Valid() bool { return h.hold.Valid() }

// Node returns the path of the hold's contender. A write that must not happen after the lock went to another contains
// session.CheckOp(Node(), -1) in its Multi.
func (h *Held) Node() string { return h.hold.Node() }

// Token returns a number that is larger than the tokens of all holders before: the czxid of the hold's contender.
func (h *Held) Token() int64 { return h.hold.Token() }

// Incarnation returns the incarnation in which the lock was acquired. The hold ends with it, unless the contender is persistent.
func (h *Held) Incarnation() *session.Incarnation { return h.hold.Incarnation() }

// Release ends the hold and removes its contender. Call it when the work under [Held.Context] has returned, also when the hold
// was lost. Release returns nil when the contender is proved deleted or its session is over: expired, or ended with the session's
// Run, after which the contender is deleted within one session timeout. When ctx ends first, the error wraps the cause and the
// removal goes on in the background. Calls after the first wait for the same removal. The removal of a persistent contender goes
// on until the session's Run ends; if the contender still exists then, the error wraps session.ErrClosed.
func (h *Held) Release(ctx context.Context) error {
	h.hold.Release(ErrReleased, func() { h.node.Abandon(ctx) }) // a persistent node keeps the session open until it is removed
	if err := h.node.Remove(hold.Outlive(ctx, ErrReleased)); err != nil {
		return operr.New("lock", "release", h.node.Path(), err)
	}
	return nil
}
