package lease

import (
	"context"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/recipe"
)

var _ recipe.Hold = (*Held)(nil)

// Do obtains the lease, calls fn, releases the lease when fn has returned, and returns fn's error. Fn's context ends when the
// lease can't be relied on any more, or with ctx. It has ctx's values, and [Hold] finds the hold in it, for Renew: Do does not
// renew the lease. Nobody else obtains the lease before fn has returned, panicked or ended its goroutine, or the lease's time is
// up. If the same identifier should get the lease next time, fn calls [Held.Detach] at its end.
//
// A handle has one hold at a time, so Do runs one function at a time: other calls of Do wait for fn, though not for other holders
// of the lease. If Obtain has returned a hold before, Do renews that hold, runs fn under it, and releases it. While fn runs,
// Obtain renews and returns fn's hold, too, and a Release or Detach of it ends fn's context.
//
// When the lease is not obtained, fn is not called, and the error is that of [NonBlockingLease.Obtain]. When ctx ends while Do
// waits for another Do of this handle, the error is a [*recipe.BlockedError] with ctx's cause. When ctx ends later, Do returns
// nil if fn returns nil, or an error that wraps the error or the cause of its context and nothing else. So a program that is
// stopped by the end of ctx ends with success as soon as fn has returned.
//
// When the hold is lost or its time is up before fn has returned, the error wraps the cause, see [Held.Context], and fn's error
// unless that is the error of its context. The work may be unfinished, and another may have begun meanwhile.
//
// Before Do returns, it waits until the record is gone or ctx ends. When ctx ends first, the removal goes on in the background.
// Do returns any other error of the release, too.
func (l *NonBlockingLease) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	return hold.Do(ctx, hold.On{Recipe: "lease", Path: l.path, Turn: l.doing}, l.Obtain, fn, hold.Release[*Held], ErrReleased)
}

// Hold returns the hold under which [NonBlockingLease.Do] called a function with ctx; nil if ctx has none. Do releases it. If ctx
// has holds of several leases, Hold returns the one that was obtained last.
func Hold(ctx context.Context) *Held { return hold.From[*Held](ctx) }
