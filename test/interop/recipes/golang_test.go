package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/kielgo/kiel/recipe/election"
	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/recipe/semaphore"
	"github.com/kielgo/kiel/session"
)

// hold is what a Go contender has got.
type hold struct {
	what, text string
	shared     bool
	session    int64 // with which it ends, 0 if it does not
	valid      func() bool
	release    func(ctx context.Context) error
	consume    func(ctx context.Context) error // of a queue's entry
}

// refusals say that something was not to be had, at once or in time.
var refusals = []error{
	context.DeadlineExceeded, lock.ErrNotAcquired, semaphore.ErrNotAcquired, lease.ErrNotObtained, queue.ErrEmpty,
}

// taker returns what gets what the schedule's contenders want, in one session.
func taker(s *session.Session, kind int, at, name string) (func(ctx context.Context, o op) (*hold, error), error) {
	switch kind {
	case ofLock, ofReadersAndWriters:
		return lockTaker(s, at, name)
	case ofSemaphore:
		sem, err := semaphore.New(s, at, semaphore.Options{MaxLeases: leases, Identifier: name})
		return func(ctx context.Context, o op) (*hold, error) {
			h, err := trying(o, sem.TryAcquire, sem.Acquire)(ctx)
			if err != nil {
				return nil, err
			}
			return trusted(h), nil
		}, err
	case ofElection:
		e, err := election.New(s, at, election.Options{Identifier: name})
		return func(ctx context.Context, _ op) (*hold, error) { return lead(ctx, e) }, err
	case ofLease:
		l, err := lease.New(s, at, lease.Options{Identifier: name, Duration: 3 * time.Second, Skew: time.Second})
		return func(ctx context.Context, _ op) (*hold, error) {
			h, err := l.Obtain(ctx)
			if err != nil {
				return nil, err
			}
			return &hold{valid: h.Valid, release: h.Release}, nil
		}, err
	case ofLockingQueue:
		q, err := queue.NewLocking(s, at, queue.Options{})
		return func(ctx context.Context, o op) (*hold, error) {
			if o.Make == "Put" {
				_, err := q.Put(ctx, []byte(o.Text), queue.DefaultPriority)
				return nil, err
			}
			held, err := q.Get(ctx)
			if err != nil {
				return nil, err
			}
			h := trusted(held)
			h.what, h.text, h.consume = path.Base(held.Path()), string(held.Value()), held.Consume
			return h, nil
		}, err
	default:
		return nil, fmt.Errorf("no recipe %d", kind)
	}
}

func lockTaker(s *session.Session, at, name string) (func(ctx context.Context, o op) (*hold, error), error) {
	locks := make(map[string]*lock.Lock)
	for kind, of := range map[string]func(*session.Session, string, lock.Options) (*lock.Lock, error){
		"Lock": lock.New, "ReadLock": lock.NewRead, "WriteLock": lock.NewWrite,
	} {
		var err error
		if locks[kind], err = of(s, at, lock.Options{Identifier: name}); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context, o op) (*hold, error) {
		l := locks[o.Make]
		held, err := trying(o, l.TryAcquire, l.Acquire)(ctx)
		if err != nil {
			return nil, err
		}
		h := trusted(held)
		h.shared = o.Make == "ReadLock"
		return h, nil
	}, nil
}

func trying[T any](o op, try, wait func(context.Context) (T, error)) func(context.Context) (T, error) {
	if o.Mode == "try" {
		return try
	}
	return wait
}

// trusted is a hold that lasts as long as its context and the trust in its session.
func trusted(h interface {
	Context() context.Context
	Incarnation() *session.Incarnation
	Release(context.Context) error
},
) *hold {
	return &hold{
		session: h.Incarnation().SessionID(),
		valid:   func() bool { return h.Context().Err() == nil && h.Incarnation().Trusted() },
		release: h.Release,
	}
}

// lead waits until we lead. Releasing the hold ends the leadership.
func lead(ctx context.Context, e *election.Election) (*hold, error) {
	elected, end, done := make(chan *hold, 1), make(chan struct{}), make(chan error, 1)
	standing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		done <- e.Run(standing, func(ctx context.Context) error {
			h := trusted(election.Hold(ctx))
			h.valid = func() bool { return ctx.Err() == nil && e.Leading() }
			elected <- h
			<-end
			return nil
		})
	}()
	defer context.AfterFunc(ctx, cancel)()
	select {
	case err := <-done:
		cancel()
		if ctx.Err() != nil {
			err = errors.Join(err, ctx.Err())
		}
		return nil, err
	case h := <-elected:
		h.release = func(ctx context.Context) error {
			defer cancel()
			close(end)
			select {
			case err := <-done:
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return h, nil
	}
}
