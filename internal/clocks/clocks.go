// Package clocks gives single members of a test clocks that go wrong: slow, fast, jumping, suspended. Only tests call
// [With]; what is not run with a context of theirs goes by the machine's clock.
package clocks

import (
	"context"
	"time"
)

// Clock tells the time on the monotonic clock, since some moment, and on the wall clock, since the epoch. It may be called
// from any goroutine.
type Clock func() (mono, wall time.Duration)

type key struct{}

// With returns a context with which a session that is run goes by c.
func With(ctx context.Context, c Clock) context.Context { return context.WithValue(ctx, key{}, c) }

// Of returns the clock of ctx, nil when that is the machine's.
func Of(ctx context.Context) Clock {
	c, _ := ctx.Value(key{}).(Clock)
	return c
}
