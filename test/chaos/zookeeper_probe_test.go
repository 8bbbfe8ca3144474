package chaos_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/wait"
)

// openSession runs a session until the test ends and returns it when it is trusted.
func openSession(t *testing.T, addrs []string, opts session.Options) *session.Session {
	t.Helper()
	s, err := session.New(addrs, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Errorf("session: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	incarnation(t, s)
	return s
}

// incarnation waits until a session is trusted.
func incarnation(t *testing.T, s *session.Session) *session.Incarnation {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settleLimit)
	defer cancel()
	inc, err := s.Incarnation(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return inc
}

// probe writes all the time and knows for how long nothing was answered.
type probe struct {
	*session.Session

	mu       sync.Mutex
	answered []int64 // members.Monotonic of each answered write
}

const probePath = "/probe"

// startProbe writes every 10 ms until the test ends.
func startProbe(t *testing.T, addrs []string, opts session.Options) *probe {
	t.Helper()
	p := &probe{Session: openSession(t, addrs, opts)}
	_, err := incarnation(t, p.Session).Create(t.Context(), probePath, nil, session.Persistent)
	if err != nil && !errors.Is(err, session.ErrNodeExists) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var writing sync.WaitGroup
	writing.Go(func() {
		every := time.NewTicker(10 * time.Millisecond)
		defer every.Stop()
		for ctx.Err() == nil {
			if inc, err := p.Incarnation(ctx); err == nil {
				if _, err := inc.Set(ctx, probePath, nil, -1); err == nil {
					p.mu.Lock()
					p.answered = append(p.answered, members.Monotonic())
					p.mu.Unlock()
				}
			}
			select {
			case <-every.C:
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() { cancel(); writing.Wait() })
	return p
}

// awaitAnswer waits until a write is answered after a time.
func (p *probe) awaitAnswer(t *testing.T, since int64) {
	t.Helper()
	wait.Until(t, settleLimit, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.answered) > 0 && p.answered[len(p.answered)-1] > since
	}, func() string { return "a write is answered" })
}

// gap returns the longest time without an answered write that ended after since.
func (p *probe) gap(since int64) (longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := since
	for _, at := range p.answered {
		if at > since {
			longest = max(longest, time.Duration(at-last))
		}
		last = at
	}
	return longest
}
