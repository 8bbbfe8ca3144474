package lock

import (
	"context"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/recipe"
)

var _ recipe.Hold = (*Held)(nil)

// Do acquires the lock, calls fn, releases the lock when fn has returned, and returns fn's error. Fn's context ends when the lock
// can't be trusted to be this handle's any more, or with ctx. It has ctx's values, and [Hold] finds the hold in it. Nobody else
// gets the lock before fn has returned, panicked or ended its goroutine, unless the session is over.
//
// When ctx ends before the lock is acquired, fn is not called, and the error is that of [Lock.Acquire]. When ctx ends later, Do
// returns nil if fn returns nil, or an error that wraps the error or the cause of its context and nothing else. So a program that
// is stopped by the end of ctx ends with success as soon as fn has returned.
//
// When the hold is lost before fn has returned, the error wraps the cause, see [Held.Context], and fn's error unless that is the
// error of its context. The work may be unfinished, and another may have begun meanwhile.
//
// Before Do returns, it waits until the contender is deleted or ctx ends. When ctx ends first, the removal goes on in the
// background. Do returns any other error of the release, too.
func (l *Lock) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	return hold.Do(ctx, hold.On{Recipe: "lock", Path: l.path}, l.Acquire, fn, hold.Release[*Held], ErrReleased)
}

// Hold returns the hold under which [Lock.Do] called a function with ctx, for its Valid, Token and Node; nil if ctx has none. Do
// releases it. If ctx has holds of several locks, Hold returns the one that was acquired last.
func Hold(ctx context.Context) *Held { return hold.From[*Held](ctx) }
