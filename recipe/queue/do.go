package queue

import (
	"context"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/recipe"
)

var _ recipe.Hold = (*Held)(nil)

// Do gets an entry, calls fn, and consumes the entry when fn has returned nil. Do gives the entry back when fn returns an error,
// panics or ends its goroutine. [Hold] finds the entry in fn's context, for its Value; the context has ctx's values. The context
// ends when the entry can't be trusted to be this handle's any more, and with ctx: an fn that has not done its work by then
// returns an error, such as that of its context. If fn has called Consume or Release itself, Do does neither; fn may call them
// with its own context.
//
// When ctx ends before the handle has an entry, fn is not called, and the error is that of [LockingQueue.Get]. When ctx ends
// later, Do returns nil if fn returns nil and the entry was consumed, or if fn's error wraps that of its context or the cause of
// its end. So a program that stops by ending ctx ends with success as soon as fn has returned.
//
// When fn has returned nil, Do returns what [Held.Consume] returns: nil, though the context had ended, if nobody else can have
// had the entry. When the hold is lost before fn has returned an error, the error wraps the cause, see [Held.Context], and fn's
// error unless that is the one of its context.
//
// Do waits until the entry is given back, for as long as ctx lasts, or consumed, for one session timeout beyond the end of ctx.
// After that the release or Consume goes on in the background; for a Consume the error wraps session.ErrUncertain.
func (q *LockingQueue) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	return hold.Do(ctx, hold.On{Recipe: "queue", Path: q.dir.path}, q.Get, fn, q.settle, ErrConsumed, ErrReleased)
}

// settle waits for the Consume or Release that fn has called. If fn has called neither, settle consumes the entry if fn is done,
// and gives it back otherwise.
func (q *LockingQueue) settle(ctx context.Context, h *Held, done bool, lost error) error {
	switch {
	case h.begun.Load() && !h.consume, !h.begun.Load() && !done:
		return hold.Release(ctx, h, done, lost)
	}
	life, stop := pause.Outlast(ctx, q.dir.session.Timeout())
	defer stop()
	return h.Consume(life)
}

// Hold returns the entry that [LockingQueue.Do] holds while it calls a function with ctx; nil when ctx has none. Do gives it back
// or consumes it.
func Hold(ctx context.Context) *Held { return hold.From[*Held](ctx) }
