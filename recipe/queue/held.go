package queue

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/session"
)

// Held is an entry that this handle has, until the context of the hold ends.
type Held struct {
	hold  *hold.Hold
	node  *node
	data  []byte       // the entry's value
	entry session.Stat // the entry's stat when it was taken

	begun   atomic.Bool // whether Consume or Release was called
	consume bool        // whether Consume was called first
	removal *hold.Removal
	err     error // of Consume; set before the removal is done
}

// newHeld returns a hold for a znode that was created. It returns nil when the incarnation is not trusted any more, or the znode
// is gone.
func newHeld(ctx context.Context, n *node, data []byte, entry session.Stat) (*Held, error) {
	id, stat, watch, err := n.inc.GetW(ctx, n.path)
	if errors.Is(err, session.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !n.made(id) {
		watch.Stop()
		return nil, nil
	}
	base := hold.Of(hold.Options{Session: n.queue.dir.session, Incarnation: n.inc, Path: n.path, Lost: ErrLost}, stat, watch)
	if base == nil {
		return nil, nil
	}
	n.czxid = stat.Czxid
	return &Held{hold: base, node: n, data: data, entry: entry, removal: hold.NewRemoval()}, nil
}

// Value returns the entry's value. It is the caller's.
func (h *Held) Value() []byte { return append([]byte{}, h.data...) }

// Path returns the path of the entry.
func (h *Held) Path() string { return h.node.entry }

// Node returns the path of the hold's znode. A write that must not happen after another got the entry carries
// session.CheckOp(Node(), -1) in its Multi.
func (h *Held) Node() string { return h.hold.Node() }

// Token returns a number that is larger than that of every hold on the entry before: the czxid of the hold's znode.
func (h *Held) Token() int64 { return h.hold.Token() }

// Incarnation returns the incarnation in which the entry is held.
func (h *Held) Incarnation() *session.Incarnation { return h.hold.Incarnation() }

// Context is the hold: it ends when the entry can't be trusted to be this handle's any more. Its cause is ErrLost, ErrConsumed,
// ErrReleased, or that of the incarnation. It is not derived from Get's context.
func (h *Held) Context() context.Context { return h.hold.Context() }

// Valid reports whether the hold may be relied on at this moment: the hold's context has not ended, and the session is trusted.
// It sends no request and costs nanoseconds: call it right before each effect.
func (h *Held) Valid() bool { return h.hold.Valid() }

// Holds reads from the server whether the entry is still held: the hold's znode exists, and neither Consume nor Release was
// called.
func (h *Held) Holds(ctx context.Context) (bool, error) {
	select {
	case <-h.Context().Done():
		return false, nil
	default:
	}
	exists, err := h.node.exists(ctx)
	if err != nil && !errors.Is(err, session.ErrSessionExpired) {
		return false, operr.New("queue", "verify the hold on", h.node.entry, err)
	}
	return err == nil && exists && h.Context().Err() == nil, nil
}

// Consume deletes the entry if it is still held. An error that wraps ErrLost says that it is not held, and that this call did not
// delete the entry; an error that wraps session.ErrUncertain says that it may have. When ctx ends first the error wraps
// ErrUncertain and the cause, and Consume goes on in the background; another call waits for it. After Release the error wraps
// ErrReleased.
func (h *Held) Consume(ctx context.Context) error {
	h.finish(ctx, true)
	if err := h.removal.Wait(hold.Outlive(ctx, ErrConsumed, ErrReleased)); err != nil {
		return operr.New("queue", "consume", h.node.entry, operr.Because(session.ErrUncertain, err))
	}
	switch {
	case !h.consume:
		return operr.New("queue", "consume", h.node.entry, ErrReleased)
	case h.err != nil:
		return operr.New("queue", "consume", h.node.entry, h.err)
	}
	return nil
}

// Release gives the entry back, so that others can get it. It returns nil when this hold's znode is deleted. When ctx ends first,
// the error wraps the cause and Release goes on in the background; another call waits for it. After Consume the error wraps
// ErrConsumed.
func (h *Held) Release(ctx context.Context) error {
	h.finish(ctx, false)
	if err := h.removal.Wait(hold.Outlive(ctx, ErrConsumed, ErrReleased)); err != nil {
		return operr.New("queue", "release", h.node.entry, err)
	}
	if h.consume {
		return operr.New("queue", "release", h.node.entry, ErrConsumed)
	}
	return nil
}

// finish starts to consume or to release the entry, whichever is called first. It keeps the session open until that is done.
func (h *Held) finish(ctx context.Context, consume bool) {
	lost, cause := context.Cause(h.Context()), ErrReleased
	if consume {
		cause = ErrConsumed
	}
	h.hold.Release(cause, func() {
		h.consume = consume
		h.begun.Store(true)
		h.removal.Start(ctx, h.node.queue.dir.session, func(life context.Context) error {
			switch {
			case !consume:
				h.node.removeAll(life)
			case errors.Is(lost, ErrLost): // the znode at the path may be another take's
				h.err = lost
			default:
				if h.err = h.node.consume(life, h.entry); h.err == nil {
					h.node.queue.dir.gone(h.node.name)
				}
			}
			return nil
		})
	})
}
