package recipetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// TB is what tests, and properties of rapid in bubbles, have in common.
type TB interface {
	Helper()
	Cleanup(f func())
	Context() context.Context
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// Session runs a session that connects as the named client of a virtual network, until the test ends.
func Session(tb TB, nw *zktest.Network, name string) *session.Session {
	tb.Helper()
	s, _ := Stoppable(tb, nw, name, session.Options{})
	return s
}

// Stoppable is Session with options, except Dial, which it sets. stop stops the session before the test ends.
func Stoppable(tb TB, nw *zktest.Network, name string, opts session.Options) (s *session.Session, stop func()) {
	tb.Helper()
	opts.Dial = nw.Client(name).Dial
	s, err := session.New([]string{zktest.VirtualAddress}, opts)
	if err != nil {
		tb.Fatal(err)
	}
	return s, Run(tb, s)
}

// Runner runs until its context ends, as a session does.
type Runner interface {
	Run(ctx context.Context) error
}

// Run runs r until stop is called or the test ends. stop waits until r's Run has returned; an error of Run fails the test.
func Run(tb TB, r Runner) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = func() {
		cancel()
		for err := range done { // a second call waits, too: without a mutex, for the sake of virtual time
			if err != nil {
				tb.Errorf("run: %v", err)
			}
			close(done)
		}
	}
	tb.Cleanup(stop)
	return stop
}

// ID returns the id of a session's ZooKeeper session. It waits until there is one.
func ID(tb TB, s *session.Session) int64 {
	tb.Helper()
	inc, err := s.Incarnation(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return inc.SessionID()
}

// Hold is a hold of any recipe, which lasts until its context ends.
type Hold interface{ Context() context.Context }

// Ended waits until a hold ends, for at most within, and checks that its cause is want.
func Ended(tb testing.TB, h Hold, within time.Duration, want error) {
	tb.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-h.Context().Done():
	case <-timer.C:
		tb.Fatal("the hold goes on")
	}
	if cause := context.Cause(h.Context()); !errors.Is(cause, want) {
		tb.Errorf("the hold ended with %v, want %v", cause, want)
	}
}

// Releaser is a hold that can be released.
type Releaser interface {
	Release(ctx context.Context) error
}

// ReleaseLater releases a hold when the test ends. It waits for a minute at most, because a test that has failed may have left
// faults on its links.
func ReleaseLater(tb testing.TB, h Releaser) {
	tb.Helper()
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), time.Minute)
		defer cancel()
		_ = h.Release(ctx)
	})
}

// Must returns a function that returns its first argument, or ends the test if the second is an error.
func Must[T any](tb testing.TB) func(T, error) T {
	tb.Helper()
	return func(v T, err error) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

// Is returns a predicate of requests of one operation.
func Is(op zktest.Op) func(zktest.Request) bool {
	return func(r zktest.Request) bool { return r.Op == op }
}
