package lease

import (
	"context"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/recipe"
)

var _ recipe.Hold = (*Held)(nil)

// Do obtains the lease, calls fn, releases the lease when fn has returned, and returns fn's error. Fn's context ends when the lease
// can't be relied on any more, or with ctx. It has ctx's values, and [Hold] finds the hold in it, for Renew: Do does not renew by
// itself. Nobody else obtains the lease before fn has returned, also by a panic or the end of its goroutine, or its time is up. An
// fn whose job is done, and is to fall to the same identifier next time, calls [Held.Detach] as the last it does.
//
// A handle has one hold at a time, so it runs one function at a time: other calls of Do wait for that, though not for others that have
// the lease. A hold that Obtain has returned before is renewed, is the one that fn runs under, and is released with it. Obtain renews
// and returns it, too, while fn runs: its Release or Detach ends fn's context.
//
// When the lease is not obtained, fn is not called, and the error is that of [NonBlockingLease.Obtain]. When ctx ends later, Do returns nil
// if fn returns nil, or an error that wraps that of its context or the cause of its end. So a program that is told to end by the end of
// ctx ends with success as soon as fn has returned.
//
// When the hold is lost, or its time is up, before fn has returned, the error wraps the cause, see [Held.Context], and fn's error unless
// that is the one of its context: the work may not be done, and another may have begun meanwhile.
//
// Before Do returns it waits until the record is gone, for as long as ctx lasts. The removal goes on in the background then. What else a
// release returns is wrapped by the error.
func (l *NonBlockingLease) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	select {
	case l.doing <- struct{}{}:
		defer func() { <-l.doing }()
	case <-ctx.Done():
		return l.wrap("do", context.Cause(ctx))
	}
	return hold.Do(ctx, l.Obtain, fn, hold.Release[*Held], ErrReleased)
}

// Hold returns the hold under which a function was called by [NonBlockingLease.Do] with ctx; nil when ctx has none. It is released by Do.
// Of several leases it is the one that was obtained last.
func Hold(ctx context.Context) *Held { return hold.From[*Held](ctx) }
