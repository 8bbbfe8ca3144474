package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

// NonBlockingLease is a handle on one lease for one identifier. Several goroutines may use it.
type NonBlockingLease struct {
	session *session.Session
	path    string
	node    string // the path of the record
	opts    Options
	lock    *lock.Lock       // the inner lock
	clock   func() time.Time // the machine's clock
	turn    chan struct{}    // full while a method of this handle writes
	doing   chan struct{}    // full while Do runs a function
	errs    *errlog.Log      // of what the servers refuse and the background outlasts

	mu   sync.Mutex
	held *Held // the newest hold, ended or not; nil before the first
}

// New returns a handle on the lease at path. It checks its arguments and does no I/O. The other methods need a session that runs.
func New(s *session.Session, path string, opts Options) (*NonBlockingLease, error) {
	if s == nil {
		return nil, operr.New("lease", "", "", errors.New("session is nil"))
	}
	if err := session.CheckPath(path); err != nil {
		return nil, operr.New("lease", "", "", err)
	}
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, operr.New("lease", "", "", err)
	}
	inner, err := lock.New(s, path, lock.Options{Identifier: opts.Identifier, Logger: opts.Logger})
	if err != nil {
		return nil, operr.New("lease", "inner lock", "", err)
	}
	return &NonBlockingLease{
		session: s,
		path:    path,
		node:    session.Join(path, "lease_holder"),
		opts:    opts,
		lock:    inner,
		clock:   time.Now,
		turn:    make(chan struct{}, 1),
		doing:   make(chan struct{}, 1),
		errs:    errlog.New(opts.Logger.With("component", "lease", "path", path)),
	}, nil
}

// Path returns the lease's path.
func (l *NonBlockingLease) Path() string { return l.path }

// Identifier returns the handle's identifier.
func (l *NonBlockingLease) Identifier() string { return l.opts.Identifier }

// Held reports whether this handle has a hold that may be relied on at this moment.
func (l *NonBlockingLease) Held() bool {
	h := l.current()
	return h != nil && h.Valid()
}

// newest returns the newest hold of this handle, ended or not, or nil.
func (l *NonBlockingLease) newest() *Held {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

// current returns the hold of this handle, or nil if it has ended.
func (l *NonBlockingLease) current() *Held {
	if h := l.newest(); h != nil && h.ctx.Err() == nil {
		return h
	}
	return nil
}

// Holder returns the record of the lease, and whether the record blocks other identifiers at this moment, by the handle's clock.
// If there is no record, Holder returns an empty one. It creates nothing.
func (l *NonBlockingLease) Holder(ctx context.Context) (r Record, taken bool, err error) {
	for {
		inc, err := l.session.Incarnation(ctx)
		if err != nil {
			return Record{}, false, l.wrap(ctx, "read the holder of", err)
		}
		r, s, err := l.read(ctx, inc)
		if errors.Is(err, session.ErrSessionExpired) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return Record{}, false, l.wrap(ctx, "read the holder of", err)
		}
		return r, s != nil && (r.Version != version || l.now().Before(r.End)), nil
	}
}

// Obtain takes the lease, unless somebody with another identifier has it: then the error wraps ErrNotObtained and a
// [*TakenError]. Obtain does not wait for the lease, but for the inner lock, which each call of any process takes to obtain,
// renew or release.
//
// While this handle has a hold, Obtain renews it and returns the same [Held]. A hold that another handle, or process, has with
// the same identifier ends.
//
// An error that wraps session.ErrUncertain says that the record may have been written, because the connection was lost or ctx has
// ended during the write. The lease is not obtained then: if the record was written, it blocks others until its end, and the next
// Obtain with the same identifier takes it over at once.
func (l *NonBlockingLease) Obtain(ctx context.Context) (*Held, error) {
	var h *Held
	err := l.inTurn(ctx, func(inner *lock.Held) error {
		if h = l.current(); h != nil {
			if err := l.renew(ctx, inner, h); err == nil || h.ctx.Err() == nil || errors.Is(err, session.ErrUncertain) {
				return err
			}
		}
		var err error
		h, err = l.obtain(ctx, inner)
		return err
	})
	if err != nil {
		return nil, l.wrap(ctx, "obtain", err)
	}
	return h, nil
}

// inTurn waits until no other method of this handle writes, and calls f under the inner lock.
func (l *NonBlockingLease) inTurn(ctx context.Context, f func(inner *lock.Held) error) error {
	if err := l.begin(ctx); err != nil {
		return err
	}
	defer l.finish()
	return l.locked(ctx, f)
}

// obtain reads the record and writes a new one, under the inner lock.
func (l *NonBlockingLease) obtain(ctx context.Context, inner *lock.Held) (*Held, error) {
	if err := l.checkClock(ctx, inner); err != nil {
		return nil, err
	}
	record, old, err := l.read(ctx, inner.Incarnation())
	if err != nil {
		return nil, err
	}
	next, err := l.newTerm()
	if err != nil {
		return nil, err
	}
	var floor time.Time
	if old != nil {
		current := next.now.Before(record.End)
		if record.Version != version || record.Holder != l.opts.Identifier && current {
			return nil, &TakenError{Path: l.path, Record: record}
		}
		if current {
			floor = l.reliedOn(record, old)
		}
	}
	next = l.notBefore(next, floor)
	if next.stat, err = l.write(ctx, inner, old, next.data); err != nil {
		return nil, err
	}
	if next.left(l) <= 0 {
		return nil, fmt.Errorf("%w: the servers took longer than that", ErrExpired)
	}
	h := l.hold(inner.Incarnation(), next, floor)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = h
	return h, nil
}

// reliedOn returns until when others of the handle's identifier may rely on a record that the handle takes over: they may be cut
// off and not see the new record. A hold of this handle that has ended relies on nothing. A record that a call of unknown outcome
// may have written counts as another's, because another of the identifier can have written the same bytes.
func (l *NonBlockingLease) reliedOn(r Record, old *stored) time.Time {
	if h := l.newest(); h != nil && h.ours(old) {
		return h.notBefore()
	}
	return r.End
}

// stored is the znode of a record.
type stored struct {
	session.Stat
	data []byte
}

// read returns the record and its znode, or nil if there is none.
func (l *NonBlockingLease) read(ctx context.Context, inc *session.Incarnation) (Record, *stored, error) {
	data, stat, err := inc.Get(ctx, l.node)
	if errors.Is(err, session.ErrNoNode) {
		return Record{}, nil, nil
	}
	if err != nil {
		return Record{}, nil, err
	}
	r, err := parse(data)
	if err != nil {
		return Record{}, nil, err
	}
	return r, &stored{Stat: stat, data: data}, nil
}

// write replaces the record old, or creates a record if old is nil, and sets the contender: once the contender is gone, the
// request can't be done any more. A new znode is set once more: the result has its metadata, and its version is above 0, while
// Python creates the znode anew each time, with version 0. After session.ErrUncertain the record may have been written.
func (l *NonBlockingLease) write(ctx context.Context, inner *lock.Held, old *stored, data []byte) (session.Stat, error) {
	ops := []session.Op{session.SetOp(inner.Node(), []byte(l.opts.Identifier), -1)}
	at := int32(0)
	if old == nil {
		ops = append(ops, session.CreateOp(l.node, data, session.Persistent))
	} else {
		at = old.Version
	}
	results, err := inner.Incarnation().Multi(ctx, append(ops, session.SetOp(l.node, data, at))...)
	if err != nil {
		return session.Stat{}, err
	}
	return results[len(results)-1].Stat, nil
}

// remove deletes the record's znode if it is still the one that was read and the contender exists.
func (l *NonBlockingLease) remove(ctx context.Context, inner *lock.Held, old *stored) error {
	_, err := inner.Incarnation().Multi(ctx, session.CheckOp(inner.Node(), -1), session.DeleteOp(l.node, old.Version))
	return err
}

// locked calls f under the inner lock. It repeats the call with another contender if nothing was written, such as when the
// session has ended or something has changed in spite of the lock, after pauses that grow to 5 s. Whoever has the inner lock
// next, the contender is gone by then, so a late request of this call fails: each request sets or checks the contender.
func (l *NonBlockingLease) locked(ctx context.Context, f func(inner *lock.Held) error) error {
	pauses := newPauses()
	for {
		inner, err := l.lock.Acquire(ctx)
		if err != nil {
			return err
		}
		err = f(inner)
		released := inner.Release(ctx)
		switch {
		case !again(err):
			return err
		case ctx.Err() != nil:
			return operr.Because(context.Cause(ctx), err)
		case released != nil:
			return err
		}
		_ = pauses.Wait(ctx) // the next Acquire returns the cause
	}
}

// insist is [NonBlockingLease.locked] for work in the background: what the servers refuse, by an ACL or a quota for instance, is
// logged and tried again, after pauses that grow to 5 s, until life ends. So is a call of unknown outcome, which is not logged: f
// reads what is there.
func (l *NonBlockingLease) insist(life context.Context, f func(inner *lock.Held) error) error {
	refusals := hold.NewRefusals(l.errs, "record")
	pauses := newPauses()
	for {
		err := l.locked(life, f)
		switch {
		case refusals.Outlast(life, err):
		case errors.Is(err, session.ErrUncertain) && life.Err() == nil:
			_ = pauses.Wait(life) // the next call returns the cause
		default:
			refusals.Over()
			return err
		}
	}
}

// newPauses returns the pauses between calls of one function. The first are short: most often, the next call succeeds.
func newPauses() *pause.Backoff {
	return &pause.Backoff{Growth: pause.Doubling(10*time.Millisecond, 5*time.Second)}
}

// again reports whether a call under the inner lock must be repeated after err. A write of unknown outcome is not repeated.
func again(err error) bool {
	if errors.Is(err, session.ErrUncertain) {
		return false
	}
	for _, e := range []error{
		errNotCompared, session.ErrSessionExpired, session.ErrBusy,
		session.ErrNoNode, session.ErrNodeExists, session.ErrBadVersion,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// begin waits until no other method of this handle writes, and excludes others until finish.
func (l *NonBlockingLease) begin(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *NonBlockingLease) finish() { <-l.turn }

func (l *NonBlockingLease) wrap(ctx context.Context, op string, err error) error {
	return hold.Wrap(ctx, "lease", op, l.path, err)
}
