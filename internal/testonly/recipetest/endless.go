package recipetest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/endless"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Endless is a test that calls Run with a context that never ends.
type Endless struct {
	*testing.T

	Server  *zktest.Server
	Session *session.Session
}

// OnEndless runs test once with each kind of context that never ends, in a bubble.
func OnEndless(t *testing.T, test func(ctx context.Context, e *Endless)) {
	t.Helper()
	for name, ctx := range endless.Contexts(t) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv, nw := zktest.StartVirtual(t, zktest.Options{})
				test(ctx, &Endless{T: t, Server: srv, Session: Session(t, nw, "a")})
			})
		})
	}
}

// GoesOn calls run, which must not return by itself within a minute. Then GoesOn calls end, which must make run return, and
// returns the result of run.
func (e *Endless) GoesOn(run func() error, end func()) error {
	e.Helper()
	return GoesOn(e, run, end)
}

// GoesOn is Endless.GoesOn for a test that has a world of its own. It belongs in a bubble.
func GoesOn(tb testing.TB, run func() error, end func()) error {
	tb.Helper()
	done := make(chan error, 1)
	go func() { done <- run() }()
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	select {
	case err := <-done:
		tb.Fatalf("run returned by itself: %v", err)
	case <-timer.C:
	}
	end()
	return <-done
}

// Close closes the session, without waiting for its holders.
func (e *Endless) Close(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	_ = e.Session.Close(ctx) // returns that the session was held
}
