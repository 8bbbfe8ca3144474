package history_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/kielgo/kiel/recipe/election"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/recipe/semaphore"
	"github.com/kielgo/kiel/session"
)

// grip is a hold of one of the recipes.
type grip struct {
	token   int64
	shared  bool
	ctx     context.Context
	valid   func() bool
	release func(ctx context.Context) error
}

// acquirer waits for a hold, or takes it only if it is free.
type acquirer func(ctx context.Context, try bool) (*grip, error)

// mutex is what is held by one, or by some, at a time.
type mutex struct {
	*run

	hist    *history
	clients []acquirer
}

// newMutex makes a subject of what the clients' acquirers acquire. Two clients, whose identifiers do not differ either, share a
// session.
func newMutex(r *run, most int, ordered bool, client func(i int, s *session.Session) acquirer) *subject {
	m := &mutex{run: r, hist: newHistory()}
	s := &subject{hist: m.hist, model: holdsModel(most, ordered), settle: m.settle}
	for i, one := range append(slices.Clone(r.sessions), r.sessions[0]) {
		m.clients = append(m.clients, client(i, one))
		s.steps = append(s.steps, func(ctx context.Context, rng *rand.Rand) { m.step(ctx, rng, i) })
	}
	return s
}

// step tries to acquire, holds it for a while and releases it.
func (m *mutex) step(ctx context.Context, rng *rand.Rand, client int) {
	within, cancel := context.WithTimeout(ctx, m.upTo(rng, 10_000))
	defer cancel()
	h, g := m.acquire(within, client, rng.IntN(4) == 0)
	if h == nil {
		m.pause(m.upTo(rng, 700))
		return
	}
	for range 1 + rng.IntN(3) {
		if m.sabotaged {
			m.pause(m.work(rng)) // it does not listen
		} else {
			m.pauseIn(g.ctx, m.work(rng))
		}
		m.hist.probe(h)
	}
	if g.ctx.Err() != nil {
		m.hist.count("ended by itself")
	}
	if cause := context.Cause(g.ctx); errors.Is(cause, lock.ErrLost) || errors.Is(cause, semaphore.ErrLost) {
		m.hist.fault("nobody removes znodes, but hold %d ended: %v", h.id, cause)
	}
	m.pause(m.upTo(rng, 100)) // the work is stopping
	life := ctx
	if rng.IntN(2) == 0 {
		short, cancel := context.WithTimeout(ctx, m.upTo(rng, 1000))
		defer cancel()
		life = short
	}
	if m.sabotaged {
		m.hist.quiet(h)
	}
	_ = g.release(life) // what it has not done it goes on with
	m.hist.finished(h, finish{h.id})
}

// acquire returns a hold that was noted, or nil.
func (m *mutex) acquire(ctx context.Context, client int, try bool) (*hold, *grip) {
	call := m.hist.tick()
	g, err := m.clients[client](ctx, try)
	if err != nil {
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, lock.ErrNotAcquired) && !errors.Is(err, semaphore.ErrNotAcquired) {
			m.hist.fault("client %d: %v", client, err)
		}
		m.hist.count("not acquired")
		return nil, nil
	}
	return m.hist.acquired(client, call,
		func(id int) any { return acquire{id, g.token, g.shared} },
		func(id int) any {
			if !g.valid() && !m.sabotaged {
				return nil
			}
			return use{id}
		}), g
}

// settle lets all acquire it once more.
func (m *mutex) settle(ctx context.Context) {
	for i := range m.clients {
		h, g := m.acquire(ctx, i, false)
		if h == nil {
			m.hist.fault("client %d can't acquire when all is well", i)
			continue
		}
		if err := g.release(ctx); err != nil {
			m.hist.fault("client %d can't release when all is well: %v", i, err)
		}
		m.hist.finished(h, finish{h.id})
	}
}

func lockAcquirer(l *lock.Lock, shared bool) acquirer {
	return func(ctx context.Context, try bool) (*grip, error) {
		acquire := l.Acquire
		if try {
			acquire = l.TryAcquire
		}
		h, err := acquire(ctx)
		if err != nil {
			return nil, err
		}
		return &grip{token: h.Token(), shared: shared, ctx: h.Context(), valid: h.Valid, release: h.Release}, nil
	}
}

// shareHandles has another goroutine use the handle of every other client.
func (s *subject) shareHandles() *subject {
	for i := 1; i < len(s.steps); i += 2 {
		s.shared = append(s.shared, s.steps[i])
	}
	return s
}

func newLocks(r *run) *subject {
	return newMutex(r, 1, true, func(_ int, s *session.Session) acquirer {
		return lockAcquirer(must(lock.New(s, r.path+"/lock", lock.Options{})), false)
	}).shareHandles()
}

// newReadWriteLocks has two readers, the others write, one of them in the session of a reader. Contenders of every other client
// outlive its sessions.
func newReadWriteLocks(r *run) *subject {
	return newMutex(r, room, false, func(i int, s *session.Session) acquirer {
		if i < 2 {
			return lockAcquirer(must(lock.NewRead(s, r.path+"/rwlock", lock.Options{Persistent: i%2 == 1})), true)
		}
		return lockAcquirer(must(lock.NewWrite(s, r.path+"/rwlock", lock.Options{Persistent: i%2 == 1})), false)
	}).shareHandles()
}

func newSemaphores(r *run) *subject {
	const leases = 2
	return newMutex(r, leases, true, func(_ int, s *session.Session) acquirer {
		sem := must(semaphore.New(s, r.path+"/semaphore", semaphore.Options{MaxLeases: leases}))
		return func(ctx context.Context, try bool) (*grip, error) {
			acquire := sem.Acquire
			if try {
				acquire = sem.TryAcquire
			}
			h, err := acquire(ctx)
			if err != nil {
				return nil, err
			}
			valid := func() bool { return h.Context().Err() == nil && h.Incarnation().Trusted() }
			return &grip{token: h.Token(), shared: true, ctx: h.Context(), valid: valid, release: h.Release}, nil
		}
	})
}

func newElections(r *run) *subject {
	return newMutex(r, 1, true, func(_ int, s *session.Session) acquirer {
		e := must(election.New(s, r.path+"/election", election.Options{}))
		return func(ctx context.Context, _ bool) (*grip, error) { return stand(ctx, e) }
	})
}

// stand runs in an election. The function that leads returns when the grip is released.
func stand(ctx context.Context, e *election.Election) (*grip, error) {
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	patient := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	elected, leave, done := make(chan *grip, 1), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- e.Run(life, func(ctx context.Context) error {
			h := election.Hold(ctx)
			elected <- &grip{token: h.Token(), ctx: ctx, valid: func() bool { return ctx.Err() == nil && h.Valid() }}
			<-leave
			return nil
		})
	}()
	select {
	case g := <-elected:
		patient()
		g.release = func(ctx context.Context) error {
			defer end(nil)
			defer context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })()
			close(leave)
			return <-done
		}
		return g, nil
	case err := <-done:
		patient()
		end(nil)
		return nil, err
	}
}
