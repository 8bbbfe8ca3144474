package semaphore

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/kielgo/kiel/internal/defaultlog"
	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

// lockSuffix follows the semaphore's path in the path of the inner lock.
const lockSuffix = "-__lock__"

// Semaphore is a handle on one semaphore. Several goroutines may use it; they share one lease.
type Semaphore struct {
	session *session.Session
	path    string
	max     int
	data    []byte
	inner   *lock.Lock
	log     *slog.Logger

	turn  chan struct{} // full while a goroutine acquires
	doing chan struct{} // full while Do runs a function

	mu    sync.Mutex
	held  *Held  // the newest hold, ended or not; nil before the first
	lease *lease // the newest lease whose znode was created, or may have been
}

// New returns a handle on the semaphore at path. It checks its arguments and does no I/O. The other methods need a session that
// runs.
func New(s *session.Session, path string, opts Options) (*Semaphore, error) {
	if s == nil {
		return nil, operr.New("semaphore", "", "", errors.New("session is nil"))
	}
	if err := session.CheckPath(path); err != nil {
		return nil, operr.New("semaphore", "", "", err)
	}
	if path == "/" {
		return nil, operr.New("semaphore", "", "", errors.New("path /: the root can't be a semaphore"))
	}
	if err := opts.validate(); err != nil {
		return nil, operr.New("semaphore", "", "", err)
	}
	inner, err := lock.New(s, path+lockSuffix, lock.Options{Identifier: pythonBytes(opts.Identifier), Logger: opts.Logger})
	if err != nil {
		return nil, operr.New("semaphore", "inner lock", "", err)
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

// Identifier returns the data of this handle's leases.
func (s *Semaphore) Identifier() string { return string(s.data) }

// Held reports whether this handle has a lease that may be relied on at this moment.
func (s *Semaphore) Held() bool {
	h := s.current()
	return h != nil && h.Valid()
}

// Acquire waits until it has acquired a lease. It goes on through lost connections and expired sessions; after an expiry it
// queues up again at the end. A handle that has a lease already returns the same [Held]. When ctx ends, the error wraps its
// cause, and is a [*recipe.BlockedError] if the call saw what blocked it. After any error the call's znodes are removed, in the
// background if the call does not wait for that. The next Acquire on this handle waits for the removal first.
func (s *Semaphore) Acquire(ctx context.Context) (*Held, error) {
	return s.acquire(ctx, "acquire", s.inner.Acquire, true)
}

// TryAcquire takes a lease if one is free and nobody else is about to take one, neither another process nor another goroutine
// with this handle. Otherwise the error is a [*recipe.BlockedError] that wraps ErrNotAcquired. TryAcquire also fails with it
// until the handle's earlier lease is proved gone: a lost lease must be released first. TryAcquire blocks for a few round trips,
// while there is no connection, and while an earlier contender of this handle for the inner lock is being removed.
func (s *Semaphore) TryAcquire(ctx context.Context) (*Held, error) {
	return s.acquire(ctx, "try to acquire", s.inner.TryAcquire, false)
}

func (s *Semaphore) acquire(ctx context.Context, op string, first func(context.Context) (*lock.Held, error), wait bool) (*Held, error) {
	if h := s.current(); h != nil && h.hold.Context().Err() == nil && !wait {
		return h, nil // the goroutine that took it may still have the turn
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
		// Release returns at once if ctx has ended, and the removal goes on in the background.
		if e := inner.Release(ctx); e != nil {
			s.log.DebugContext(ctx, "releasing inner lock in the background", "path", s.path, "error", e)
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

// takeTurn lets one goroutine at a time acquire through this handle. Without wait it fails while another goroutine acquires.
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

// current returns the newest hold of this handle, ended or not, or nil.
func (s *Semaphore) current() *Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// settle waits until the handle's last lease is proved gone, so that it does not block the next lease and nobody works under it.
// Without wait settle fails while the last lease may exist: a lost lease exists until somebody releases it.
func (s *Semaphore) settle(ctx context.Context, wait bool) error {
	s.mu.Lock()
	last := s.lease
	s.mu.Unlock()
	if last == nil {
		return nil
	}
	blocked := s.blocked(last.path, s.data, 0, ErrNotAcquired)
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

// blocked returns the error of a call that is blocked by the znode at path blocker, or, if that is "", by another call on this
// handle.
func (s *Semaphore) blocked(blocker string, data []byte, taken int, err error) *recipe.BlockedError {
	return &recipe.BlockedError{
		Recipe: "semaphore", Path: s.path, Blocker: blocker, Identifier: hold.Identifier(data), Detail: hold.Detail(taken, "taken"), Err: err,
	}
}

// wrap adds operation and path to err. If the inner lock was not acquired at once, the error is this semaphore's ErrNotAcquired.
func (s *Semaphore) wrap(ctx context.Context, op string, err error) error {
	if b, ok := hold.Blocked(ctx, err); ok && errors.Is(b.Err, lock.ErrNotAcquired) {
		own := *b
		own.Err = ErrNotAcquired
		err = &own
	}
	return hold.Wrap(ctx, "semaphore", op, s.path, err)
}

// LeaseHolder describes a lease that a process holds.
type LeaseHolder struct {
	Node       string    // the path of the lease's znode
	Identifier string    // the znode's data without invalid UTF-8; "" if its ACL forbids us to read it
	Token      int64     // the znode's czxid
	Session    int64     // the ZooKeeper session that owns the znode; 0 if the znode is persistent
	Since      time.Time // when the znode was created, by the server's clock
}

// LeaseHolders returns the holders of leases, in no order; none if the semaphore's znode is missing. It creates nothing.
func (s *Semaphore) LeaseHolders(ctx context.Context) ([]LeaseHolder, error) {
	for {
		list, err := s.leaseHolders(ctx)
		if err == nil {
			return list, nil
		}
		if !errors.Is(err, session.ErrSessionExpired) || ctx.Err() != nil {
			return nil, s.wrap(ctx, "list leases of", err)
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
