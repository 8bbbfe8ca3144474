package kafkaconn

import "context"

// Await waits for done, until ctx ends at most, and reports whether done is closed. A nil done counts as closed.
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
