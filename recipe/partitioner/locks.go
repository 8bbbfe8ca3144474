package partitioner

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

// maxAtOnce is how many locks are acquired at once. 16 of them keep a near server busy; more hide the round trips of a slow
// network. The limit is there because proofs of life queue behind the locks' requests.
const maxAtOnce = 64

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
	if err := m.p.fits(share); err != nil {
		v.watch.Stop()
		return err
	}
	// stable ends when the members change. It outlives this try.
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
	a.ctx, a.end = context.WithCancelCause(hold.In(stable, a))
	for _, item := range share {
		h := m.held[item]
		a.held[item] = h
		context.AfterFunc(h.Context(), func() { a.end(context.Cause(h.Context())) })
	}
	m.alloc, m.unwatch = a, func() { change(ErrReleased) }
	return nil
}

// lockAll acquires the locks of the share: many at once while nobody else has them, and then one by one, in the share's order.
// While it waits for a lock it holds no lock of a later item, as in kazoo. So members that disagree about their shares never wait
// for each other.
func (m *machine) lockAll(ctx, stable context.Context, share []string) error {
	both, cancel := context.WithCancelCause(stable)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	for many := maxAtOnce; len(share) > 0; many = min(2*many, maxAtOnce) {
		n, err := m.lockFree(both, share[:min(many, len(share))])
		if err == nil && n < min(many, len(share)) {
			err = m.lockNext(both, share[n])
			n, many = n+1, 1
		}
		if both.Err() != nil {
			return context.Cause(both)
		}
		if err != nil {
			return err
		}
		share = share[n:]
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

// lockNext waits for the lock of one item.
func (m *machine) lockNext(ctx context.Context, item string) error {
	h, err := m.p.locks[item].Acquire(ctx)
	if err == nil {
		m.held[item] = h
	}
	return err
}

// lockFree tries to acquire the locks of the items, all at once. It keeps those in front of the first one that somebody else has,
// releases the others, and returns how many it keeps.
func (m *machine) lockFree(ctx context.Context, items []string) (int, error) {
	held, errs := make([]*lock.Held, len(items)), make([]error, len(items))
	var trying sync.WaitGroup
	for i, item := range items {
		trying.Go(func() { held[i], errs[i] = m.p.locks[item].TryAcquire(ctx) })
	}
	trying.Wait()
	free := len(items)
	for i, item := range items {
		switch {
		case errors.Is(errs[i], lock.ErrNotAcquired):
			free = min(free, i)
		case errs[i] == nil:
			m.held[item] = held[i]
		}
	}
	for _, err := range errs {
		if err != nil && !errors.Is(err, lock.ErrNotAcquired) {
			return 0, err
		}
	}
	m.unlock(ctx, items[free:])
	return free, nil
}

// giveBack releases all locks, and waits until they are gone or ctx ends.
func (m *machine) giveBack(ctx context.Context) {
	m.endAllocation(ErrReleased)
	m.unlock(ctx, slices.Collect(maps.Keys(m.held)))
}

// unlock releases the locks of those items that are held, and waits until they are gone or ctx ends.
func (m *machine) unlock(ctx context.Context, items []string) {
	released := make([]bool, len(items))
	var waiting sync.WaitGroup
	for i, item := range items {
		if h := m.held[item]; h != nil {
			waiting.Go(func() { released[i] = h.Release(ctx) == nil }) // after an error it goes on in the background
		}
	}
	waiting.Wait()
	for i, item := range items {
		if released[i] {
			delete(m.held, item)
		}
	}
}

// endAllocation ends the allocation. Its locks stay.
func (m *machine) endAllocation(cause error) {
	if m.alloc != nil {
		m.alloc.end(cause)
		m.unwatch()
		m.alloc = nil
	}
}
