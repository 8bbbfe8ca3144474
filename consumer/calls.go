package consumer

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// calls counts goroutines. Unlike a WaitGroup it may be waited for without end or
// for a while, and more may be started all the time.
type calls struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when none is left; nil while nobody waits
}

// start runs f on a goroutine that is counted.
func (c *calls) start(f func()) {
	c.begin()
	go func() {
		defer c.left()
		f()
	}()
}

func (c *calls) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func (c *calls) left() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 && c.none != nil {
		close(c.none)
		c.none = nil
	}
}

// ended returns a channel that is closed when none is left.
func (c *calls) ended() <-chan struct{} {
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

// wait returns when none is left.
func (c *calls) wait() { <-c.ended() }

// run runs what blocks and knows no context. It returns what f returns, or ctx's
// cause when ctx ends first: then the call goes on, counted by c, and what f
// returns without error goes to late.
func run[T any](ctx context.Context, c *calls, f func() (T, error), late func(T)) (T, error) {
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
	c.start(func() {
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
		return none, fmt.Errorf("consumer: %w", context.Cause(ctx))
	}
}

// await waits for done, until ctx ends at most, and says whether it came. A nil
// done has come.
func await(ctx context.Context, done <-chan struct{}) bool {
	if done == nil {
		return true
	}
	select {
	case <-done:
		return true
	default:
	}
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// overdue returns a context that ends d after ctx does; the caller calls stop.
func overdue(ctx context.Context, d time.Duration) (late context.Context, stop context.CancelFunc) {
	late, stop = context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		defer stop()
		_ = sleep(late, d)
	})
	return late, stop
}

// sleep waits for d or ctx's end, whose cause it returns.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// backoff grows from first to most.
type backoff struct{ next, first, most time.Duration }

func newBackoff(first, most time.Duration) *backoff {
	return &backoff{next: first, first: first, most: most}
}

func (b *backoff) wait(ctx context.Context) error {
	d := b.next
	b.next = min(2*b.next, b.most)
	return sleep(ctx, d)
}

func (b *backoff) reset() { b.next = b.first }
