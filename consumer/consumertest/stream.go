package consumertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/kielgo/kiel/consumer/internal/fetch"
)

// ErrEnd says that all messages of a Partition have been handed out, and are marked or were not for Options.Patience. It is the
// cause with which the handler's context ends then.
var ErrEnd = errors.New("consumertest: all messages were handed out")

// stream hands out a Partition's messages.
type stream struct {
	of *Partition

	mu     sync.Mutex
	next   int64 // the offset that is handed out next
	paused bool
	news   chan struct{} // closed when there may be something to hand out
}

func newStream(p *Partition, start int64) *stream {
	return &stream{of: p, next: start, news: make(chan struct{})}
}

// more wakes Next.
func (s *stream) more() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.news)
	s.news = make(chan struct{})
}

// look is how often the end of a partition asks whether all messages are marked.
const look = time.Millisecond

// Next returns all messages that there are. At the end it waits until they are marked, so that the context of a handler does not
// end under what that has in hand.
func (s *stream) Next(ctx context.Context) (fetch.Batch, error) {
	began := time.Now()
	for ctx.Err() == nil {
		s.mu.Lock()
		next, paused, news := s.next, s.paused, s.news
		s.mu.Unlock()
		messages, end := s.of.from(next)
		switch {
		case paused:
		case len(messages) > 0:
			s.Reposition(end)
			return fetch.Batch{Messages: messages, Next: end, LeaderEpoch: -1}, nil
		case !s.of.opts.KeepOpen && (s.of.Marked() >= end || time.Since(began) >= s.of.opts.Patience):
			return fetch.Batch{}, ErrEnd
		}
		s.wait(ctx, news, paused || s.of.opts.KeepOpen)
	}
	return fetch.Batch{}, context.Cause(ctx)
}

// wait waits for news, or, unless it is to be patient, for a moment at most.
func (s *stream) wait(ctx context.Context, news <-chan struct{}, patient bool) {
	var soon <-chan time.Time
	if !patient {
		timer := time.NewTimer(look)
		defer timer.Stop()
		soon = timer.C
	}
	select {
	case <-news:
	case <-soon:
	case <-ctx.Done():
	}
}

// Reposition sets what Next returns next.
func (s *stream) Reposition(offset int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = offset
}

// Pause has Next wait.
func (s *stream) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = true
}

// Resume ends the pause.
func (s *stream) Resume() {
	s.mu.Lock()
	s.paused = false
	s.mu.Unlock()
	s.more()
}

// End returns the offset after the last message.
func (s *stream) End() int64 {
	_, end := s.of.from(0)
	return end
}

// HighWatermark is End: there are no transactions.
func (s *stream) HighWatermark() int64 { return s.End() }

// Lag returns what Next has not returned.
func (s *stream) Lag() (messages int64, behind time.Duration) {
	s.mu.Lock()
	next := s.next
	s.mu.Unlock()
	waiting, end := s.of.from(next)
	if len(waiting) == 0 {
		return 0, 0
	}
	return end - next, fetch.Age(waiting[0].Timestamp)
}

// FailingSince returns zero: reading never fails.
func (*stream) FailingSince() time.Time { return time.Time{} }

// AskEnd does nothing.
func (*stream) AskEnd(context.Context, time.Duration) {}

// Freshen does nothing.
func (*stream) Freshen(time.Duration) {}

// Close does nothing: what waits in Next waits with a context.
func (*stream) Close() {}
