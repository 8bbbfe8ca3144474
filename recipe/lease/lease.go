package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kielgo/kiel/internal/sabotage"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

// NonBlockingLease is one lease, seen by one identifier. It may be used by several goroutines.
type NonBlockingLease struct {
	session *session.Session
	path    string
	node    string // of the record
	opts    Options
	lock    *lock.Lock
	clock   func() time.Time // the machine's
	turn    chan struct{}    // full while a method of this handle writes, or cleans up

	mu   sync.Mutex
	held *Held // the newest
}

// New returns a handle on the lease at path. It checks its arguments and does no I/O.
// The session must be running for the other methods to succeed.
func New(s *session.Session, path string, opts Options) (*NonBlockingLease, error) {
	return newLease(s, path, opts, sabotage.Rules{})
}

func newLease(s *session.Session, path string, opts Options, off sabotage.Rules) (*NonBlockingLease, error) {
	opts = opts.withDefaults(off)
	if err := opts.validate(off); err != nil {
		return nil, err
	}
	inner, err := lock.New(s, path, lock.Options{Identifier: innerIdentifier(opts, off), Logger: opts.Logger})
	if err != nil {
		return nil, fmt.Errorf("lease: %w", err)
	}
	return &NonBlockingLease{
		session: s,
		path:    path,
		node:    session.Join(path, "lease_holder"),
		opts:    opts,
		lock:    inner,
		clock:   time.Now,
		turn:    make(chan struct{}, 1),
	}, nil
}

// Path returns the lease's path.
func (l *NonBlockingLease) Path() string { return l.path }

// Identifier returns who we are.
func (l *NonBlockingLease) Identifier() string { return l.opts.Identifier }

// Held reports whether the lease was obtained through this handle and may be relied on
// at this moment.
func (l *NonBlockingLease) Held() bool {
	h := l.current()
	return h != nil && h.Valid()
}

// current returns the hold of this handle if it has not ended.
func (l *NonBlockingLease) current() *Held {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil || l.held.ctx.Err() != nil {
		return nil
	}
	return l.held
}

// Holder returns the record of the lease, and whether it holds somebody off at this
// moment, by our clock. A lease that nobody ever had has an empty one. It creates nothing.
func (l *NonBlockingLease) Holder(ctx context.Context) (r Record, taken bool, err error) {
	for {
		inc, err := l.session.Incarnation(ctx)
		if err != nil {
			return Record{}, false, l.wrap("look at", err)
		}
		r, s, err := l.read(ctx, inc)
		if errors.Is(err, session.ErrSessionExpired) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return Record{}, false, l.wrap("look at", err)
		}
		return r, s != nil && (r.Version != version || l.now().Before(r.End)), nil
	}
}

// Obtain takes the lease, unless somebody with another identifier has it: then the error
// wraps ErrNotObtained and is a [*TakenError]. It does not wait for the lease, but for the
// inner lock, for which those who obtain, renew and release take turns.
//
// While this handle has a hold, Obtain renews it and returns the same. A hold that another
// handle, or process, has with our identifier ends.
//
// When ctx ends, what may have been written is removed in the background; the next call on
// this handle waits for that.
func (l *NonBlockingLease) Obtain(ctx context.Context) (*Held, error) {
	if err := l.begin(ctx); err != nil {
		return nil, l.wrap("obtain", err)
	}
	done := l.finish
	defer func() { done() }()
	if h := l.current(); h != nil {
		open, err := l.renew(ctx, h)
		if open {
			done = func() {} // later
		}
		if err == nil {
			return h, nil
		}
		if h.ctx.Err() == nil || ctx.Err() != nil {
			return nil, l.wrap("renew", err)
		}
		if open {
			if err := l.begin(ctx); err != nil {
				return nil, l.wrap("obtain", err)
			}
			done = l.finish
		}
	}
	var t try
	err := l.lockedAndKept(ctx, func(inner *lock.Held) error { return l.obtain(ctx, inner, &t) })
	if err != nil {
		open := kept(ctx, err)
		switch {
		case len(t.written) > 0 && !t.had && !sabotage.Of(ctx).Off(sabotage.TryRemoved):
			done = func() {}
			l.cleanUp(ctx, t, open)
		case open != nil:
			_ = open.inner.Release(ctx) // in the background
		}
		return nil, l.wrap("obtain", err)
	}
	h := l.hold(ctx, t)
	l.mu.Lock()
	l.held = h
	l.mu.Unlock()
	return h, nil
}

// try is what an Obtain did so far.
type try struct {
	term    term
	written []written // records that may stand
	had     bool      // our identifier had the lease before
	floor   time.Time // others of our identifier may rely on the lease until then
}

// obtain looks and writes, with the inner lock held.
func (l *NonBlockingLease) obtain(ctx context.Context, inner *lock.Held, t *try) error {
	if err := l.checkClock(ctx, inner); err != nil {
		return err
	}
	record, old, err := l.read(ctx, inner.Incarnation())
	if err != nil {
		return err
	}
	next, err := l.newTerm(ctx)
	if err != nil {
		return err
	}
	if old != nil {
		current := next.now.Before(record.End)
		if record.Version != version || record.Holder != l.opts.Identifier && current {
			return &TakenError{Path: l.path, Record: record}
		}
		if current && !t.wrote(old, inner) {
			t.had = true
			t.floor = l.reliedOn(ctx, record, old)
		}
	}
	next = l.notBefore(ctx, next, t.floor)
	sent := newWritten(ctx, inner, next.data)
	stat, err := l.write(ctx, inner, old, next.data)
	if err == nil {
		sent.mzxid = stat.Mzxid
	}
	if err == nil || unknown(err) {
		t.written = append(t.written, sent)
	}
	if err != nil {
		return err
	}
	next.stat = stat
	t.term = next
	if next.left(l) <= 0 {
		return fmt.Errorf("%w: the servers took longer than that", ErrExpired)
	}
	return nil
}

// wrote reports whether a record is what the try has written.
func (t *try) wrote(old *stored, inner *lock.Held) bool {
	return slices.ContainsFunc(t.written, func(w written) bool { return w.is(old, inner) })
}

// reliedOn returns until when others of our identifier may rely on a record that we take over: they
// may be cut off and not see that. Our own hold that has ended relies on nothing.
func (l *NonBlockingLease) reliedOn(ctx context.Context, r Record, old *stored) time.Time {
	if sabotage.Of(ctx).Off(sabotage.EndKept) {
		return time.Time{}
	}
	l.mu.Lock()
	h := l.held
	l.mu.Unlock()
	if h != nil && h.knows(old.Stat) {
		return h.notBefore()
	}
	return r.End
}

// stored is a record's znode.
type stored struct {
	session.Stat
	data []byte
}

// read returns the record, and its znode or nil.
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

// write puts a record in the place of old, and sets our contender: see settle. A new znode is written twice, for its metadata:
// so its version is none that Python's has, which creates it anew each time.
func (l *NonBlockingLease) write(ctx context.Context, inner *lock.Held, old *stored, data []byte) (session.Stat, error) {
	if sabotage.Of(ctx).Off(sabotage.RecordSet) {
		return l.writeAsKazoo(ctx, inner, old, data)
	}
	ops := []session.Op{session.SetOp(l.checked(ctx, inner), []byte(l.opts.Identifier), -1)}
	at := int32(0)
	if old == nil {
		ops = append(ops, session.CreateOp(l.node, data, session.Persistent))
	} else {
		at = old.Version
	}
	sent := send(ctx, inner, append(ops, session.SetOp(l.node, data, at)))
	stat, err := sent.wait(ctx)
	if err == nil {
		return stat, nil
	}
	if errors.Is(err, session.ErrUncertain) && ctx.Err() == nil {
		stat, done, unsettled := l.settle(ctx, sent)
		switch {
		case unsettled == nil && done:
			return stat, nil
		case unsettled == nil:
			return session.Stat{}, fmt.Errorf("%w: the record was not written", session.ErrBusy)
		}
	}
	if unknown(err) {
		return session.Stat{}, &unknownError{sent: sent, err: err}
	}
	return session.Stat{}, err
}

// remove deletes the record's znode, as it was read.
func (l *NonBlockingLease) remove(ctx context.Context, inner *lock.Held, old *stored) error {
	_, err := inner.Incarnation().Multi(ctx, session.CheckOp(l.checked(ctx, inner), -1), session.DeleteOp(l.node, old.Version))
	return err
}

// locked calls f with the inner lock held. It does so again, with another contender, when
// the outcome is unknown, or something has changed although we have the lock. Between the
// calls the contender is proved gone, and with it the check that a late request carries.
func (l *NonBlockingLease) locked(ctx context.Context, f func(inner *lock.Held) error) error {
	err := l.lockedAndKept(ctx, f)
	if open := kept(ctx, err); open != nil {
		_ = open.inner.Release(ctx) // in the background
	}
	return err
}

// lockedAndKept is locked, but when ctx ends before it is known what became of a write, the inner lock is left: see kept.
func (l *NonBlockingLease) lockedAndKept(ctx context.Context, f func(inner *lock.Held) error) error {
	for {
		inner, err := l.lock.Acquire(ctx)
		if err != nil {
			return err
		}
		err = f(inner)
		ended := ctx.Err() != nil
		if ended && kept(ctx, err) != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		released := inner.Release(ctx)
		if !again(err) {
			return err
		}
		if ctx.Err() != nil {
			// Not what kept looks for: the inner lock is released.
			return fmt.Errorf("%w: %w", context.Cause(ctx), bare(err))
		}
		if released != nil {
			return bare(err)
		}
	}
}

// bare returns the error of a write without what kept looks for.
func bare(err error) error {
	if u, ok := errors.AsType[*unknownError](err); ok {
		return u.err
	}
	return err
}

// again reports whether a call under the inner lock is to be made again.
func again(err error) bool {
	for _, e := range []error{
		session.ErrUncertain, session.ErrSessionExpired, session.ErrBusy,
		session.ErrNoNode, session.ErrNodeExists, session.ErrBadVersion,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// cleanUp removes, in the background, what a try may have written. Open is its last write if the inner lock is still held.
func (l *NonBlockingLease) cleanUp(ctx context.Context, t try, open *sent) {
	letGo := l.session.Hold()
	go func() {
		defer l.finish()
		defer letGo()
		// After that the record holds nobody off.
		life, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.opts.Duration+l.opts.Skew)
		defer cancel()
		if open != nil && l.cleanedUp(life, &t, open) {
			return
		}
		err := l.locked(life, func(inner *lock.Held) error {
			_, old, err := l.read(life, inner.Incarnation())
			if err != nil || old == nil {
				return err
			}
			if !t.wrote(old, inner) && !sabotage.Of(life).Off(sabotage.TryByBytes) {
				return nil
			}
			return l.remove(life, inner, old)
		})
		if err != nil {
			l.opts.Logger.WarnContext(life, "lease not removed after a failed try", "path", l.node, "error", err)
		}
	}()
}

// cleanedUp removes what a try has written last, under the try's own contender. It reports whether nothing is left to do.
func (l *NonBlockingLease) cleanedUp(life context.Context, t *try, open *sent) bool {
	defer func() { _ = open.inner.Release(life) }()
	stat, done, err := l.settle(life, open)
	last := len(t.written) - 1
	switch {
	case err != nil:
		return false
	case !done:
		t.written = t.written[:last]
		return last == 0
	}
	t.written[last].mzxid = stat.Mzxid
	return l.remove(life, open.inner, &stored{Stat: stat}) == nil
}

// begin waits until no other method of this handle writes.
func (l *NonBlockingLease) begin(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *NonBlockingLease) finish() { <-l.turn }

func (l *NonBlockingLease) wrap(op string, err error) error {
	return fmt.Errorf("lease: %s %s: %w", op, l.path, err)
}
