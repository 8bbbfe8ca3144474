package recipetest

import (
	"context"
	"testing"
	"time"
)

// Call is a call that goes on in the background.
type Call[T any] struct {
	Value T
	Err   error

	Done chan struct{} // closed when the call has returned; Value and Err belong to it before
}

// Later calls f in the background.
func Later[T any](f func() (T, error)) *Call[T] {
	c := &Call[T]{Done: make(chan struct{})}
	go func() {
		defer close(c.Done)
		c.Value, c.Err = f()
	}()
	return c
}

// Background calls f in the background. The channel is closed when f has returned.
func Background(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}

// Acquire acquires a hold within a minute. The hold is released at the end of the test, if not before.
func Acquire[H Releaser](w *World, acquire func(context.Context) (H, error)) H {
	w.Helper()
	h, err := acquire(w.Within(time.Minute))
	if err != nil {
		w.Fatalf("acquire: %v; znodes:\n%s", err, w.Srv.Dump())
	}
	ReleaseLater(w, h)
	return h
}

// AcquireLater acquires a hold in the background. The hold is released as that of Acquire.
func AcquireLater[H Releaser](ctx context.Context, tb testing.TB, acquire func(context.Context) (H, error)) *Call[H] {
	tb.Helper()
	return Later(func() (H, error) {
		h, err := acquire(ctx)
		if err == nil {
			ReleaseLater(tb, h)
		}
		return h, err
	})
}

// Ended reports whether the call has returned.
func (c *Call[T]) Ended() bool {
	select {
	case <-c.Done:
		return true
	default:
		return false
	}
}

// Get waits for the call, which must succeed.
func (c *Call[T]) Get(tb testing.TB) T {
	tb.Helper()
	<-c.Done
	if c.Err != nil {
		tb.Fatal(c.Err)
	}
	return c.Value
}
