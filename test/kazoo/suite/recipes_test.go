package suite_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/recipe/counter"
	"github.com/kielgo/kiel/recipe/election"
	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/recipe/semaphore"
	"github.com/kielgo/kiel/session"
)

// kinds are kazoo's recipes by the names of their classes, but for those of counters: a counter of kazoo's is of one kind or
// another.
func kinds() map[string]func(s *session.Session, r request) (object, error) {
	return map[string]func(s *session.Session, r request) (object, error){
		"Lock":                  newLock,
		"ReadLock":              newReadLock,
		"WriteLock":             newWriteLock,
		"Semaphore":             newSemaphore,
		"Election":              newElection,
		"NonBlockingLease":      newLease,
		"MultiNonBlockingLease": newMultiLease,
		"Queue":                 newQueue,
		"LockingQueue":          newLockingQueue,
		"Barrier":               newBarrier,
		"DoubleBarrier":         newDoubleBarrier,
		"Party":                 newParty,
		"ShallowParty":          newShallowParty,
		"SetPartitioner":        newPartitioner,
		"intCounter": func(s *session.Session, r request) (object, error) {
			return counterOf(counter.New(s, r.Path, counter.Options[int64]{Default: int64(r.Default)}))
		},
		"floatCounter": func(s *session.Session, r request) (object, error) {
			return counterOf(counter.NewFloat(s, r.Path, counter.Options[float64]{Default: r.Default}))
		},
		"CuratorCounter": func(s *session.Session, r request) (object, error) {
			return counterOf(counter.NewCurator(s, r.Path, counter.Options[int32]{Default: int32(r.Default)}))
		},
	}
}

// hold is what a recipe's handle has acquired.
type hold interface {
	comparable
	Node() string
	Release(ctx context.Context) error
}

// kept is the hold that an object of kazoo's has, if any: kazoo's methods are those of the object, and ours of the hold.
type kept[H hold] struct {
	mu  sync.Mutex
	one H
}

func (k *kept[H]) set(h H) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.one = h
}

// get reports whether there is a hold.
func (k *kept[H]) get() (h H, ok bool) {
	var none H
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.one, k.one != none
}

// take is get, after which there is none.
func (k *kept[H]) take() (h H, ok bool) {
	defer func() {
		var none H
		k.set(none)
	}()
	return k.get()
}

// acquire returns kazoo's acquire.
func (k *kept[H]) acquire(wait, try func(context.Context) (H, error)) func(ctx context.Context, r request) (any, error) {
	return func(ctx context.Context, r request) (any, error) {
		f := wait
		if !r.Block {
			f = try
		}
		h, err := f(ctx)
		if err != nil {
			return nil, err
		}
		k.set(h)
		return h.Node(), nil
	}
}

// release returns kazoo's release, which says whether there was a hold.
func (k *kept[H]) release(ctx context.Context, _ request) (any, error) {
	h, ok := k.take()
	if !ok {
		return false, nil
	}
	return true, h.Release(ctx)
}

func identifiers[C any](list []C, err error, identifier func(c C) string) (any, error) {
	names := []string{}
	for _, c := range list {
		names = append(names, identifier(c))
	}
	return names, err
}

func lockOptions(r request) lock.Options {
	return lock.Options{Identifier: r.Identifier, ExtraPatterns: r.Patterns}
}

// newLock makes a Lock, which kazoo can acquire for good.
func newLock(s *session.Session, r request) (object, error) {
	opts := lockOptions(r)
	l, err := lock.New(s, r.Path, opts)
	if err != nil {
		return nil, err
	}
	opts.Persistent = true
	lasting, err := lock.New(s, r.Path, opts)
	k := &kept[*lock.Held]{}
	o := lockOf(k, l)
	forNow, forGood := o["acquire"], k.acquire(lasting.Acquire, lasting.TryAcquire)
	o["acquire"] = func(ctx context.Context, r request) (any, error) {
		if r.Persistent {
			return forGood(ctx, r)
		}
		return forNow(ctx, r)
	}
	return o, err
}

func newReadLock(s *session.Session, r request) (object, error) {
	l, err := lock.NewRead(s, r.Path, lockOptions(r))
	return lockOf(&kept[*lock.Held]{}, l), err
}

func newWriteLock(s *session.Session, r request) (object, error) {
	l, err := lock.NewWrite(s, r.Path, lockOptions(r))
	return lockOf(&kept[*lock.Held]{}, l), err
}

func lockOf(k *kept[*lock.Held], l *lock.Lock) object {
	return object{"acquire": k.acquire(l.Acquire, l.TryAcquire), "release": k.release, "contenders": contendersOf(l)}
}

func contendersOf(l interface {
	Contenders(ctx context.Context) ([]lock.Contender, error)
},
) func(ctx context.Context, r request) (any, error) {
	return func(ctx context.Context, _ request) (any, error) {
		list, err := l.Contenders(ctx)
		return identifiers(list, err, func(c lock.Contender) string { return c.Identifier })
	}
}

func newSemaphore(s *session.Session, r request) (object, error) {
	if r.Count < 1 {
		return nil, errors.New("less than one lease")
	}
	sem, err := semaphore.New(s, r.Path, semaphore.Options{Identifier: r.Identifier, MaxLeases: r.Count})
	k := &kept[*semaphore.Held]{}
	return object{
		"acquire": k.acquire(sem.Acquire, sem.TryAcquire),
		"release": k.release,
		"lease_holders": func(ctx context.Context, _ request) (any, error) {
			list, err := sem.LeaseHolders(ctx)
			return identifiers(list, err, func(h semaphore.LeaseHolder) string { return h.Identifier })
		},
	}, err
}

// newElection makes an Election, whose leader's function runs in Python: from the end of acquire to release.
func newElection(s *session.Session, r request) (object, error) {
	e, err := election.New(s, r.Path, election.Options{Identifier: r.Identifier})
	over, ended := make(chan struct{}), make(chan error, 1)
	return object{
		"acquire": func(ctx context.Context, _ request) (any, error) {
			elected := make(chan struct{})
			life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
			stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
			go func() {
				ended <- e.Run(life, func(context.Context) error {
					stop()
					close(elected)
					<-over
					return nil
				})
				cancel(nil)
			}()
			select {
			case <-elected:
				return nil, nil
			case err := <-ended:
				return nil, err
			}
		},
		"release": func(context.Context, request) (any, error) {
			over <- struct{}{}
			return nil, <-ended
		},
		"contenders": contendersOf(e),
	}, err
}

// stretch is how much longer leases last here than in kazoo's tests, which have ones of 3 s: a lease must be longer than the
// skew.
const stretch = 10

func leaseOptions(r request) lease.Options {
	now := time.Unix(0, 0).Add(time.Duration(stretch * r.Now * float64(time.Second)))
	return lease.Options{
		Identifier: r.Identifier, Duration: stretch * time.Duration(r.Duration*float64(time.Second)),
		Now: func() time.Time { return now },
	}
}

func newLease(s *session.Session, r request) (object, error) {
	l, err := lease.New(s, r.Path, leaseOptions(r))
	return leaseOf(l.Obtain), err
}

func newMultiLease(s *session.Session, r request) (object, error) {
	l, err := lease.NewMulti(s, r.Path, r.Count, leaseOptions(r))
	return leaseOf(l.ObtainAny), err
}

// leaseOf leaves a lease to run out, as kazoo does.
func leaseOf(obtain func(ctx context.Context) (*lease.Held, error)) object {
	return object{"obtain": func(ctx context.Context, _ request) (any, error) {
		h, err := obtain(ctx)
		if err != nil {
			return nil, err
		}
		h.Detach()
		return true, nil
	}}
}

func putTo(q interface {
	PutAll(ctx context.Context, values [][]byte, priority int) ([]string, error)
	Len(ctx context.Context) (int, error)
},
) object {
	return object{
		"put": func(ctx context.Context, r request) (any, error) { return q.PutAll(ctx, r.Values, r.Priority) },
		"len": func(ctx context.Context, _ request) (any, error) { return q.Len(ctx) },
	}
}

func newQueue(s *session.Session, r request) (object, error) {
	q, err := queue.New(s, r.Path, queue.Options{})
	o := putTo(q)
	o["get"] = func(ctx context.Context, _ request) (any, error) { return q.TryGet(ctx) }
	return o, err
}

func newLockingQueue(s *session.Session, r request) (object, error) {
	q, err := queue.NewLocking(s, r.Path, queue.Options{})
	o, k := putTo(q), &kept[*queue.Held]{}
	o["get"] = func(ctx context.Context, _ request) (any, error) {
		h, ok := k.get()
		if !ok {
			var err error
			if h, err = q.Get(ctx); err != nil {
				return nil, err
			}
			k.set(h)
		}
		return h.Value(), nil
	}
	o["consume"] = func(ctx context.Context, _ request) (any, error) {
		h, ok := k.take()
		if !ok {
			return false, nil
		}
		err := h.Consume(ctx)
		return err == nil, err
	}
	o["holds"] = func(ctx context.Context, _ request) (any, error) {
		h, ok := k.get()
		if !ok {
			return false, nil
		}
		return h.Holds(ctx)
	}
	o["release"] = k.release
	return o, err
}

func newBarrier(s *session.Session, r request) (object, error) {
	b, err := barrier.New(s, r.Path, barrier.Options{})
	return object{
		"create": func(ctx context.Context, _ request) (any, error) { return nil, b.Create(ctx) },
		"wait":   func(ctx context.Context, _ request) (any, error) { return nil, b.Wait(ctx) },
		"remove": func(ctx context.Context, _ request) (any, error) { return b.Remove(ctx) },
	}, err
}

func newDoubleBarrier(s *session.Session, r request) (object, error) {
	b, err := barrier.NewDouble(s, r.Path, r.Count, barrier.DoubleOptions{Identifier: r.Identifier})
	members := make(chan *barrier.Member, 1)
	return object{
		"enter": func(ctx context.Context, _ request) (any, error) {
			m, err := b.Enter(ctx)
			if err == nil {
				members <- m
			}
			return nil, err
		},
		"leave":         func(ctx context.Context, _ request) (any, error) { return nil, (<-members).Leave(ctx) },
		"participating": func(context.Context, request) (any, error) { return b.Participating(), nil },
		"node":          func(context.Context, request) (any, error) { return b.Node(), nil },
	}, err
}

func newParty(s *session.Session, r request) (object, error) {
	p, err := party.NewKazooParty(s, r.Path, party.KazooOptions{Identifier: r.Identifier})
	return partyOf(p), err
}

func newShallowParty(s *session.Session, r request) (object, error) {
	p, err := party.NewShallowParty(s, r.Path, party.KazooOptions{Identifier: r.Identifier})
	return partyOf(p), err
}

func partyOf(p interface {
	Join(ctx context.Context) error
	Leave(ctx context.Context) error
	Members(ctx context.Context) ([]string, error)
	IsMember() bool
	Node() string
},
) object {
	return object{
		"join":          func(ctx context.Context, _ request) (any, error) { return nil, p.Join(ctx) },
		"leave":         func(ctx context.Context, _ request) (any, error) { return nil, p.Leave(ctx) },
		"participating": func(context.Context, request) (any, error) { return p.IsMember(), nil },
		"node":          func(context.Context, request) (any, error) { return p.Node(), nil },
		"members": func(ctx context.Context, _ request) (any, error) {
			list, err := p.Members(ctx)
			return identifiers(list, err, func(name string) string { return name })
		},
	}
}

// newPartitioner makes and starts a SetPartitioner, as kazoo does.
func newPartitioner(s *session.Session, r request) (object, error) {
	p, err := partitioner.New(s, r.Path, r.Items, partitioner.Options{Identifier: r.Identifier, TimeBoundary: r.timeout()})
	if err != nil {
		return nil, err
	}
	return object{
		"state":            func(context.Context, request) (any, error) { return p.State().String(), nil },
		"items":            func(context.Context, request) (any, error) { return append([]string{}, p.Items()...), nil },
		"wait_for_acquire": func(ctx context.Context, _ request) (any, error) { return p.WaitForAcquire(ctx) },
		"release_set":      func(ctx context.Context, _ request) (any, error) { return nil, p.ReleaseSet(ctx) },
		"finish":           func(ctx context.Context, _ request) (any, error) { return nil, p.Finish(ctx) },
		"expire": func(context.Context, request) (any, error) {
			s.GiveUp(fmt.Errorf("the test has %s fail", p.Identifier()))
			return nil, nil
		},
	}, p.Start(context.Background())
}

func counterOf[V int32 | int64 | float64](c *counter.Counter[V], err error) (object, error) {
	return object{
		"value": func(ctx context.Context, _ request) (any, error) { return c.Get(ctx) },
		"add": func(ctx context.Context, r request) (any, error) {
			_, err := c.Add(ctx, V(r.Delta))
			last, _ := c.Last()
			return []V{last.Pre, last.Post}, err
		},
	}, err
}
