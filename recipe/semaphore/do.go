package semaphore

import (
	"context"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/recipe"
)

var _ recipe.Hold = (*Held)(nil)

// Do acquires a lease, calls fn, releases the lease when fn has returned, and returns fn's error. Fn's context ends when the
// lease can't be trusted to be this handle's any more, or with ctx. It has ctx's values, and [Hold] finds the lease in it. Nobody
// else gets the lease before fn has returned, panicked or ended its goroutine, unless the session is over.
//
// A handle has one lease at a time, so Do runs one function at a time: other calls of Do wait. If Acquire has returned a lease
// before, fn runs under that lease, and Do releases it. While fn runs, Acquire returns fn's lease, too, and a Release of it ends
// fn's context.
//
// When ctx ends before a lease is acquired, fn is not called, and the error is that of [Semaphore.Acquire]. When ctx ends later,
// Do returns nil if fn returns nil, or an error that wraps the error or the cause of its context and nothing else. So a program
// that is stopped by the end of ctx ends with success as soon as fn has returned.
//
// When the lease is lost before fn has returned, the error wraps the cause, see [Held.Context], and fn's error unless that is the
// error of its context. The work may be unfinished, and another may have begun meanwhile.
//
// Before Do returns, it waits until the lease's znode is deleted or ctx ends. When ctx ends first, the removal goes on in the
// background. Do returns any other error of the release, too.
func (s *Semaphore) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	return hold.Do(ctx, hold.On{Recipe: "semaphore", Path: s.path, Turn: s.doing}, s.Acquire, fn, hold.Release[*Held], ErrReleased)
}

// Hold returns the lease under which [Semaphore.Do] called a function with ctx, for its Valid, Token and Node; nil if ctx has
// none. Do releases it. If ctx has leases of several semaphores, Hold returns the one that was acquired last.
func Hold(ctx context.Context) *Held { return hold.From[*Held](ctx) }
