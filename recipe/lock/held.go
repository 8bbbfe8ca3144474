package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/kielgo/kiel/internal/sabotage"
	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/session"
)

// Held is a lock that is ours, until its context ends.
type Held struct {
	session *session.Session
	lasting bool // the contender is persistent
	node    *seqnode.Node
	inc     *session.Incarnation
	token   int64
	ctx     context.Context //nolint:containedctx // a hold is a lifetime
	end     context.CancelCauseFunc
	letGo   func() // lets the session close
	release sync.Once
}

// hold makes a hold of a node that was seen to be first in inc. It returns nil when
// inc is not trusted any more, and seqnode.ErrGone when the node is not there.
func (l *Lock) hold(ctx context.Context, n *seqnode.Node, inc *session.Incarnation) (*Held, error) {
	exists, stat, watch, err := inc.ExistsW(ctx, n.Path())
	if err != nil {
		return nil, err
	}
	off := sabotage.Of(ctx)
	if !exists && !off.Off(sabotage.OwnSeen) {
		watch.Stop()
		return nil, seqnode.ErrGone
	}
	if !inc.Trusted() {
		watch.Stop()
		return nil, nil
	}
	h := &Held{session: l.session, lasting: l.opts.Persistent, node: n, inc: inc, token: stat.Czxid, letGo: l.session.Hold()}
	life := inc.Context()
	if h.lasting {
		life = context.WithoutCancel(ctx)
	}
	h.ctx, h.end = context.WithCancelCause(life)
	if off.Off(sabotage.TokenByCzxid) {
		h.token = n.Seq()
	}
	if off.Off(sabotage.KeepUntilReleased) {
		context.AfterFunc(life, func() { n.Abandon(ctx) })
	}
	go h.guard(watch)
	return h, nil
}

// guard ends the hold when its contender disappears.
func (h *Held) guard(watch *session.Watch) {
	for {
		select {
		case <-watch.C():
		case <-h.ctx.Done():
			watch.Stop()
			return
		}
		exists, stat, next, err := h.look()
		switch {
		case h.ctx.Err() != nil:
			return
		case err != nil:
			h.end(fmt.Errorf("%w: can't look after %s: %w", ErrLost, h.node.Path(), err))
			return
		case !exists || stat.Czxid != h.token:
			h.end(fmt.Errorf("%w: %s", ErrLost, h.node.Path()))
			return
		}
		watch = next
	}
}

// look asks whether the contender is still there, in the session that it lives in, or
// in whatever session there is if it is persistent.
func (h *Held) look() (bool, session.Stat, *session.Watch, error) {
	for {
		inc := h.inc
		if h.lasting {
			var err error
			if inc, err = h.session.Incarnation(h.ctx); err != nil {
				return false, session.Stat{}, nil, err
			}
		}
		exists, stat, watch, err := inc.ExistsW(h.ctx, h.node.Path())
		if !h.lasting || !errors.Is(err, session.ErrSessionExpired) {
			return exists, stat, watch, err
		}
	}
}

// Context is the hold: it ends when the lock can't be trusted to be ours any more.
// Its cause is ErrLost, ErrReleased, or that of the incarnation. It is not derived
// from Acquire's context. That of a persistent contender ends with ErrLost, ErrReleased,
// or, when Run has ended and nobody looks after it any more, ErrLost and session.ErrClosed.
func (h *Held) Context() context.Context { return h.ctx }

// Valid reports whether the hold may be relied on at this moment: its context has not
// ended, and the session is trusted, unless the contender is persistent. It costs
// nanoseconds: call it right before each effect.
func (h *Held) Valid() bool { return h.ctx.Err() == nil && (h.lasting || h.inc.Trusted()) }

// Node returns the path of our contender. A write that must not happen after the
// lock went to another carries session.CheckOp(Node(), -1) in its Multi.
func (h *Held) Node() string { return h.node.Path() }

// Token returns a number that is larger than that of every holder before: the czxid
// of our contender.
func (h *Held) Token() int64 { return h.token }

// Incarnation returns the incarnation in which the lock is held, for a persistent
// contender that in which it was acquired.
func (h *Held) Incarnation() *session.Incarnation { return h.inc }

// Release ends the hold and removes our contender. Call it once the work under
// [Held.Context] has returned, also when the hold was lost. It returns nil when the
// contender is proved gone, or its session is over: expired, or ended with the session's
// Run, after which it is gone within one session timeout. When ctx ends first, the error
// wraps the cause and the removal goes on in the background. Calls after the first
// wait for the same. The removal of a persistent contender goes on until Run ends; the
// error wraps session.ErrClosed if the contender stands then.
func (h *Held) Release(ctx context.Context) error {
	h.release.Do(func() {
		h.end(ErrReleased)
		h.node.Abandon(ctx) // keeps the session itself where that matters
		h.letGo()
	})
	if err := h.node.Remove(ctx); err != nil {
		return fmt.Errorf("lock: release %s: %w", h.node.Path(), err)
	}
	return nil
}
