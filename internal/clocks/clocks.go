// Package clocks gives single members of a test clocks that go wrong: slow, fast, jumping, suspended. Only tests call [With]; a
// session that runs without such a context uses the machine's clock.
package clocks

import (
	"context"
	"time"
)

// Clock tells the time on the monotonic clock, since some moment, and on the wall clock, since 1970. It may be called from
// any goroutine.
type Clock func() (mono, wall time.Duration)

type key struct{}

// With returns a context; a session that runs with it uses the clock c.
func With(ctx context.Context, c Clock) context.Context { return context.WithValue(ctx, key{}, c) }

// Of returns the clock of ctx, nil if that is the machine's.
func Of(ctx context.Context) Clock {
	c, _ := ctx.Value(key{}).(Clock)
	return c
}
