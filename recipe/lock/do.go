package lock

import (
	"context"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/recipe"
)

var _ recipe.Hold = (*Held)(nil)

// Do acquires the lock, calls fn, releases the lock when fn has returned, and returns fn's error. Fn's context ends when the
// lock can't be trusted to be ours any more, or with ctx. It has ctx's values, and [Hold] finds the hold in it. Nobody
// else has the lock before fn has returned, also by a panic or the end of its goroutine, unless our session is over.
//
// When ctx ends before the lock is ours, fn is not called, and the error is that of [Lock.Acquire]. When ctx ends later, Do
// returns nil if fn returns nil, or an error that wraps that of its context or the cause of its end. So a program that is told
// to end by the end of ctx ends with success as soon as fn has returned.
//
// When the hold is lost before fn has returned, the error wraps the cause, see [Held.Context], and fn's error unless that is the
// one of its context: the work may not be done, and another may have begun meanwhile.
//
// Before Do returns it waits until our contender is gone, for as long as ctx lasts: while no server can be reached, until ctx ends.
// The removal goes on in the background then. What else a release returns is wrapped by the error.
func (l *Lock) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	return hold.Do(ctx, l.Acquire, fn, hold.Release[*Held], ErrReleased)
}

// Hold returns the hold under which a function was called by [Lock.Do] with ctx, for its Valid, Token and Node; nil when ctx has
// none. It is released by Do. Of several locks it is the one that was acquired last.
func Hold(ctx context.Context) *Held { return hold.From[*Held](ctx) }
