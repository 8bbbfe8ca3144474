package semaphore

import (
	"context"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/recipe"
)

var _ recipe.Hold = (*Held)(nil)

// Do acquires a lease, calls fn, releases the lease when fn has returned, and returns fn's error. Fn's context ends when the lease
// can't be trusted to be ours any more, or with ctx. It has ctx's values, and [Hold] finds the lease in it. Nobody else has the
// lease before fn has returned, also by a panic or the end of its goroutine, unless our session is over.
//
// A handle has one lease at a time, so it runs one function at a time: other calls of Do wait. A lease that Acquire has returned
// before is the one that fn runs under, and is released with it. Acquire returns it, too, while fn runs: a Release of that lease ends
// fn's context.
//
// When ctx ends before there is a lease for us, fn is not called, and the error is that of [Semaphore.Acquire]. When ctx ends later,
// Do returns nil if fn returns nil, or an error that wraps that of its context or the cause of its end. So a program that is told
// to end by the end of ctx ends with success as soon as fn has returned.
//
// When the lease is lost before fn has returned, the error wraps the cause, see [Held.Context], and fn's error unless that is the
// one of its context: the work may not be done, and another may have begun meanwhile.
//
// Before Do returns it waits until our znode is gone, for as long as ctx lasts: while no server can be reached, until ctx ends. The
// removal goes on in the background then. What else a release returns is wrapped by the error.
func (s *Semaphore) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	select {
	case s.doing <- struct{}{}:
		defer func() { <-s.doing }()
	case <-ctx.Done():
		return s.blocked("", nil, 0, context.Cause(ctx))
	}
	return hold.Do(ctx, s.Acquire, fn, hold.Release[*Held], ErrReleased)
}

// Hold returns the lease under which a function was called by [Semaphore.Do] with ctx, for its Valid, Token and Node; nil when ctx
// has none. It is released by Do. Of leases of several semaphores it is the one that was acquired last.
func Hold(ctx context.Context) *Held { return hold.From[*Held](ctx) }
