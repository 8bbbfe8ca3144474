package kafkaconn

import (
	"context"
	"time"

	"github.com/kielgo/kiel/internal/pause"
)

// Await waits for done, until ctx ends at most, and returns whether done is closed. A nil
// done counts as closed.
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
		_ = pause.Sleep(late, d)
	})
	return late, stop
}
