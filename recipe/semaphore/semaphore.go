package semaphore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kielgo/kiel/internal/defaultlog"
	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

// lockSuffix makes the path of the inner lock, beside the semaphore's.
const lockSuffix = "-__lock__"

// Semaphore is one semaphore. It may be used by several goroutines, which then have
// one lease together.
type Semaphore struct {
	session *session.Session
	path    string
	max     int
	data    []byte
	inner   *lock.Lock
	log     *slog.Logger

	turn  chan struct{} // holds an element while somebody acquires
	doing chan struct{} // holds an element while a function runs under the lease

	mu    sync.Mutex
	held  *Held  // the newest, until it is released
	lease *lease // the newest made or perhaps made
}

// New returns a handle on the semaphore at path. It checks its arguments and does no
// I/O. The session must be running for the other methods to succeed.
func New(s *session.Session, path string, opts Options) (*Semaphore, error) {
	if s == nil {
		return nil, errors.New("semaphore: no session")
	}
	if err := session.CheckPath(path); err != nil {
		return nil, fmt.Errorf("semaphore: %w", err)
	}
	if path == "/" {
		return nil, errors.New("semaphore: the root can't be a semaphore")
	}
	if err := opts.validate(); err != nil {
		return nil, err
	}
	inner, err := lock.New(s, path+lockSuffix, lock.Options{Identifier: pythonBytes(opts.Identifier), Logger: opts.Logger})
	if err != nil {
		return nil, fmt.Errorf("semaphore: inner lock: %w", err)
	}
	opts.Logger = defaultlog.Or(opts.Logger)
	return &Semaphore{
		session: s,
		path:    path,
		max:     cmp.Or(opts.MaxLeases, 1),
		data:    []byte(opts.Identifier),
		inner:   inner,
		log:     opts.Logger.With("component", "semaphore"),
		turn:    make(chan struct{}, 1),
		doing:   make(chan struct{}, 1),
	}, nil
}

// Identifier returns the data of our leases.
func (s *Semaphore) Identifier() string { return string(s.data) }

// Held reports whether this handle has a lease that may be relied on at this moment.
func (s *Semaphore) Held() bool {
	h := s.current()
	return h != nil && h.Valid()
}

// Acquire waits until there is a lease for us. It outlives lost connections and expired
// sessions; after an expiry it queues up again at the end. A handle that has a lease
// already returns the same [Held]. When ctx ends, the error wraps its cause, and is a
// [*recipe.BlockedError] if something was seen in the way. Whatever the error, no znode of ours
// is left, save for what is being removed in the background; the next Acquire on this
// handle first waits for that.
func (s *Semaphore) Acquire(ctx context.Context) (*Held, error) {
	return s.acquire(ctx, "acquire", s.inner.Acquire, true)
}

// TryAcquire takes a lease if one is free and nobody else is about to take one, be it another
// goroutine that acquires through this handle. Otherwise the error wraps ErrNotAcquired and is
// a [*recipe.BlockedError]; so it is while an earlier lease of this handle is not proved gone, such as
// one that was lost and not released. It blocks for a few round trips, while there is no
// connection, and while a contender of ours for the inner lock is being removed.
func (s *Semaphore) TryAcquire(ctx context.Context) (*Held, error) {
	return s.acquire(ctx, "try", s.inner.TryAcquire, false)
}

func (s *Semaphore) acquire(ctx context.Context, op string, first func(context.Context) (*lock.Held, error), wait bool) (*Held, error) {
	if h := s.current(); h != nil && h.hold.Context().Err() == nil && !wait {
		return h, nil // though who took it may still have the turn
	}
	if err := s.takeTurn(ctx, wait); err != nil {
		return nil, err
	}
	defer func() { <-s.turn }()
	if h := s.current(); h != nil && h.hold.Context().Err() == nil {
		return h, nil
	}
	for {
		if err := s.settle(ctx, wait); err != nil {
			return nil, s.wrap(ctx, op, err)
		}
		inner, err := first(ctx)
		if err != nil {
			return nil, s.wrap(ctx, op, err)
		}
		h, err := s.take(ctx, inner, wait)
		// At once when ctx has ended: then it goes on in the background.
		if e := inner.Release(ctx); e != nil {
			s.log.DebugContext(ctx, "inner lock is released in the background", "path", s.path, "error", e)
		}
		if err == nil {
			return h, nil
		}
		again := errors.Is(err, errAgain) || errors.Is(err, session.ErrSessionExpired)
		if again && ctx.Err() != nil {
			err, again = context.Cause(ctx), false
		}
		if !again {
			return nil, s.wrap(ctx, op, err)
		}
	}
}

// takeTurn makes us the only one who acquires through this handle. If it is not to wait, it
// does not: the other may wait for as long as it likes.
func (s *Semaphore) takeTurn(ctx context.Context, wait bool) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	default:
	}
	if !wait {
		return s.blocked("", nil, 0, ErrNotAcquired)
	}
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return s.blocked("", nil, 0, context.Cause(ctx))
	}
}

// current returns the lease that we have, be it lost or not, or nil.
func (s *Semaphore) current() *Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// settle waits until the last lease of this handle is proved gone, so that it is not in
// the way of the next, and nobody works on it. If it is not to wait, it only looks: a lost
// lease is gone when somebody releases it.
func (s *Semaphore) settle(ctx context.Context, wait bool) error {
	s.mu.Lock()
	last := s.lease
	s.mu.Unlock()
	if last == nil {
		return nil
	}
	blocked := s.blocked(last.path, s.data, 1, ErrNotAcquired)
	select {
	case <-last.own.Gone():
		return nil
	default:
	}
	if !wait {
		return blocked
	}
	var patience seqnode.Patience
	err := patience.Wait(ctx, last.own.Gone(), func(waited time.Duration) {
		s.log.WarnContext(ctx, "still waiting", "path", s.path, "waited", waited, "blocker",
			seqnode.Blocker{Path: last.path, Data: s.data, Stat: session.Stat{EphemeralOwner: last.inc.SessionID()}})
	})
	if err != nil {
		blocked.Err = err
		return blocked
	}
	return nil
}

// blocked says what is in the way; the blocker is "" for another call on the same handle.
func (s *Semaphore) blocked(blocker string, data []byte, taken int, err error) *recipe.BlockedError {
	return &recipe.BlockedError{
		Recipe: "semaphore", Path: s.path, Blocker: blocker, Identifier: hold.Identifier(data), Taken: taken, Err: err,
	}
}

// wrap says what failed, and turns what the inner lock knows about the znode in the way
// into ours.
func (s *Semaphore) wrap(ctx context.Context, op string, err error) error {
	inner, ok := hold.Blocked(ctx, err)
	if !ok {
		return fmt.Errorf("semaphore: %s %s: %w", op, s.path, err)
	}
	b := *inner
	b.Recipe, b.Path = "semaphore", s.path
	if errors.Is(b.Err, lock.ErrNotAcquired) {
		b.Err = ErrNotAcquired
	}
	return &b
}

// LeaseHolder is a process that holds a lease.
type LeaseHolder struct {
	Node       string    // path of its znode
	Identifier string    // its data, as far as it is UTF-8; "" if its ACL does not let us read it
	Token      int64     // czxid of its znode
	Session    int64     // the ZooKeeper session that it ends with; 0 if it ends with none
	Since      time.Time // when it was made, by the server's clock
}

// LeaseHolders returns who holds a lease, in no order. A semaphore whose znode is missing
// has none. It creates nothing.
func (s *Semaphore) LeaseHolders(ctx context.Context) ([]LeaseHolder, error) {
	for {
		list, err := s.leaseHolders(ctx)
		if err == nil {
			return list, nil
		}
		if !errors.Is(err, session.ErrSessionExpired) || ctx.Err() != nil {
			return nil, s.wrap(ctx, "list", err)
		}
	}
}

func (s *Semaphore) leaseHolders(ctx context.Context) ([]LeaseHolder, error) {
	inc, err := s.session.Incarnation(ctx)
	if err != nil {
		return nil, err
	}
	children, _, err := inc.Children(ctx, s.path)
	if errors.Is(err, session.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []LeaseHolder
	for _, name := range children {
		path := session.Join(s.path, name)
		data, stat, err := seqnode.Read(ctx, inc, path)
		if errors.Is(err, session.ErrNoNode) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, LeaseHolder{
			Node:       path,
			Identifier: hold.Text(data, 0),
			Token:      stat.Czxid,
			Session:    stat.EphemeralOwner,
			Since:      time.UnixMilli(stat.Ctime),
		})
	}
	return list, nil
}
