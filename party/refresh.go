package party

import (
	"context"

	"github.com/kielgo/kiel/internal/operr"
)

// Refresh makes Run read the directory again, after a Sync, and waits until the view is published. It returns an error if ctx
// ends before, and ErrStopped if Run does.
func (p *Party) Refresh(ctx context.Context) error {
	done := make(chan struct{})
	request := p.refresh
	for {
		select {
		case request <- done:
			request = nil
		case <-done:
			return nil
		case <-p.done:
			return operr.New("party", "refresh", p.path, ErrStopped)
		case <-ctx.Done():
			return operr.New("party", "refresh", p.path, context.Cause(ctx))
		}
	}
}

// answer makes the waiting calls of Refresh return, because the view is published.
func (l *loop) answer() {
	for _, done := range l.refreshing {
		close(done)
	}
	l.refreshing = nil
}
