package kafkaconn

import (
	"context"
	"time"
)

// Await waits for done, until ctx ends at most, and says whether it came. A nil
// done has come.
func Await(ctx context.Context, done <-chan struct{}) bool {
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

// Overdue returns a context that ends d after ctx does; the caller calls stop.
func Overdue(ctx context.Context, d time.Duration) (late context.Context, stop context.CancelFunc) {
	late, stop = context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		defer stop()
		_ = Sleep(late, d)
	})
	return late, stop
}

// Sleep waits for d or ctx's end, whose cause it returns.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Backoff is a pause between attempts, which doubles with each attempt up to a limit.
type Backoff struct{ next, first, most time.Duration }

// NewBackoff returns a Backoff that begins with first and grows to most.
func NewBackoff(first, most time.Duration) *Backoff {
	return &Backoff{next: first, first: first, most: most}
}

// Wait waits for the next pause, or until ctx ends, whose cause it returns.
func (b *Backoff) Wait(ctx context.Context) error {
	d := b.next
	b.next = min(2*b.next, b.most)
	return Sleep(ctx, d)
}

// Reset makes the next pause the first one again.
func (b *Backoff) Reset() { b.next = b.first }
