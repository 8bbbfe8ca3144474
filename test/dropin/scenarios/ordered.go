package scenarios

import (
	"context"
	"slices"
	"sync"
	"time"
)

// ordered is a context that ends the contexts derived from it before it closes its own Done. The contexts of package context do
// the reverse, so it is chance whether who waits for Done finds the cause in a derived context, or is faster and ends that with
// another one. A cooperative group of sarama does both.
type ordered struct {
	context.Context //nolint:containedctx // this is one; has the cause

	deadline time.Time
	cause    context.CancelCauseFunc
	done     chan struct{}

	mu      sync.Mutex
	err     error
	derived []func() // end the derived contexts
}

// newOrdered returns an ordered context with a deadline, the zero time for none. It ends by end alone.
func newOrdered(deadline time.Time) *ordered {
	c := &ordered{deadline: deadline, done: make(chan struct{})}
	c.Context, c.cause = context.WithCancelCause(context.Background())
	return c
}

// end ends the context with an error and a cause; err is the cause when that is nil. Only the first call does something.
func (c *ordered) end(err, cause error) {
	c.mu.Lock()
	ended := c.err != nil
	if !ended {
		c.err = err
	}
	derived := slices.Clone(c.derived)
	c.mu.Unlock()
	if ended {
		return
	}
	if cause == nil {
		cause = err
	}
	c.cause(cause)
	for _, end := range derived {
		end()
	}
	close(c.done)
}

// AfterFunc is what package context calls to derive a context.
func (c *ordered) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	at := len(c.derived)
	c.derived = append(c.derived, f)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.derived[at] = func() {}
		return c.err == nil
	}
}

// Deadline implements context.Context.
func (c *ordered) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

// Done implements context.Context.
func (c *ordered) Done() <-chan struct{} { return c.done }

// Err implements context.Context.
func (c *ordered) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
