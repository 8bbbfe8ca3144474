package consumer

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// calls runs what blocks and knows no context: a caller stops waiting when its
// context ends, the call goes on and is waited for by wait.
type calls struct{ wg sync.WaitGroup }

// wait returns when no call is under way.
func (c *calls) wait() { c.wg.Wait() }

// run runs f and returns what it returns, or ctx's cause when ctx ends first.
// What f returns without error after that goes to late.
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
	c.wg.Go(func() {
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
