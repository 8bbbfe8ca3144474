package kafkaconn

import (
	"context"
	"sync"
)

// Calls counts goroutines. Unlike with a WaitGroup, a caller may wait for a limited time, and goroutines may be started while
// others wait.
type Calls struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when no goroutine is left; nil while nobody waits
}

// Start runs f on a counted goroutine.
func (c *Calls) Start(f func()) {
	c.Begin()
	go func() {
		defer c.End()
		f()
	}()
}

// Begin counts a call that was not started by Start; End must follow.
func (c *Calls) Begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

// End ends a call that Begin has counted.
func (c *Calls) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 && c.none != nil {
		close(c.none)
		c.none = nil
	}
}

// Ended returns a channel that is closed when no call is left.
func (c *Calls) Ended() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.n == 0:
		none := make(chan struct{})
		close(none)
		return none
	case c.none == nil:
		c.none = make(chan struct{})
	}
	return c.none
}

// Wait returns when no call is left.
func (c *Calls) Wait() { <-c.Ended() }

// Run calls f, which blocks and takes no context. It returns the results of f, or ctx's cause when ctx ends first. In that case
// the call goes on, counted by c, and a value that f returns without an error is passed to late.
func Run[T any](ctx context.Context, c *Calls, f func() (T, error), late func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if err := context.Cause(ctx); err != nil {
		return none, err
	}
	done := make(chan result)
	gone := make(chan struct{})
	c.Start(func() {
		v, err := f()
		select {
		case done <- result{v, err}:
		case <-gone:
			if err == nil && late != nil {
				late(v)
			}
		}
	})
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		close(gone)
		return none, context.Cause(ctx)
	}
}
