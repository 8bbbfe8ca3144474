package partitioner

import (
	"context"
	"sync"

	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

// try divides the set once. When it returns an error, some locks may be held.
func (m *machine) try(ctx context.Context) error {
	v, err := m.quiet(ctx)
	if err != nil {
		return err
	}
	share, deadline, err := m.share(ctx, v)
	if err != nil {
		v.watch.Stop()
		return err
	}
	// What has to stay as it is. It lasts longer than the try.
	stable, change := context.WithCancelCause(m.ctx)
	hurry, calm := context.WithCancel(stable)
	m.monitors.Go(func() { change(m.monitor(stable, hurry.Done(), v, deadline)) })
	err = m.lockAll(ctx, stable, share)
	if err != nil {
		change(err)
		calm()
		return err
	}
	calm()
	a := &Allocation{items: share, held: make(map[string]*lock.Held, len(share))}
	a.ctx, a.end = context.WithCancelCause(context.WithValue(stable, holdKey{}, a))
	for _, item := range share {
		h := m.held[item]
		a.held[item] = h
		context.AfterFunc(h.Context(), func() { a.end(context.Cause(h.Context())) })
	}
	m.alloc, m.unwatch = a, func() { change(ErrReleased) }
	return nil
}

// lockAll acquires the locks of the share one after the other.
func (m *machine) lockAll(ctx, stable context.Context, share []string) error {
	both, cancel := context.WithCancelCause(stable)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	for _, item := range share {
		h, err := m.p.locks[item].Acquire(both)
		if err == nil {
			m.held[item] = h
		}
		if both.Err() != nil {
			return context.Cause(both)
		}
		if err != nil {
			return err
		}
	}
	for _, h := range m.held {
		if h.Context().Err() != nil {
			return context.Cause(h.Context())
		}
		if h.Incarnation().SessionID() != m.session {
			return session.ErrSessionExpired
		}
	}
	return nil
}

// giveBack releases all locks, and waits until they are gone or ctx ends.
func (m *machine) giveBack(ctx context.Context) {
	m.endAllocation(ErrReleased)
	var (
		waiting sync.WaitGroup
		mu      sync.Mutex
		left    = make(map[string]*lock.Held)
	)
	for item, h := range m.held {
		waiting.Go(func() {
			if h.Release(ctx) != nil { // it goes on in the background
				mu.Lock()
				defer mu.Unlock()
				left[item] = h
			}
		})
	}
	waiting.Wait()
	m.held = left
}

// endAllocation ends what was handed out. Its locks stay.
func (m *machine) endAllocation(cause error) {
	if m.alloc != nil {
		m.alloc.end(cause)
		m.unwatch()
		m.alloc = nil
	}
}
