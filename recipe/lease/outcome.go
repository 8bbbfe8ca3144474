package lease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/kielgo/kiel/internal/sabotage"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

// Ends have full seconds, so two processes of one identifier can write the same bytes: those don't tell whose a
// record is. What does is the zxid: a write of the record sets our contender, too, and while that stands
// both have the same.

// betweenLooks is the pause before another look at what became of a write.
const betweenLooks = 100 * time.Millisecond

// unknownError is the error of a write of the record that may have been carried out. If it is returned by lockedAndKept, the
// inner lock may still be held.
type unknownError struct {
	sent *sent
	err  error
}

func (e *unknownError) Error() string { return e.err.Error() }
func (e *unknownError) Unwrap() error { return e.err }

// sent is a write of the record, under the inner lock. It does not end with its caller's context: one that was given up before
// it was handed to the connection can still be, and then a look that was begun later has come before it.
type sent struct {
	inner    *lock.Held
	returned chan struct{} // closed when it is not under way any more
	stat     session.Stat  // of the record, if it was written
	err      error
}

// send begins to write. The last operation is that on the record.
func send(ctx context.Context, inner *lock.Held, ops []session.Op) *sent {
	s := &sent{inner: inner, returned: make(chan struct{})}
	if s.err = context.Cause(ctx); s.err != nil {
		close(s.returned)
		return s
	}
	go func() {
		defer close(s.returned)
		results, err := inner.Incarnation().Multi(context.WithoutCancel(ctx), ops...)
		if s.err = err; err == nil {
			s.stat = results[len(results)-1].Stat
		}
	}()
	return s
}

// wait waits for the outcome, or for the end of ctx.
func (s *sent) wait(ctx context.Context) (session.Stat, error) {
	select {
	case <-s.returned:
		return s.stat, s.err
	case <-ctx.Done():
		return session.Stat{}, fmt.Errorf("%w: %w", session.ErrUncertain, context.Cause(ctx))
	}
}

// written is a record that we have sent.
type written struct {
	contender string // ours, at that time
	token     int64  // its czxid
	data      []byte
	mzxid     int64 // of the record, when it is known that it was written
	off       sabotage.Rules
}

func newWritten(ctx context.Context, inner *lock.Held, data []byte) written {
	return written{contender: inner.Node(), token: inner.Token(), data: data, off: sabotage.Of(ctx)}
}

// is reports whether a record is surely this one, seen under a later inner lock. When the first session is over the zxid
// of the contender is not known any more; then nobody may have had the inner lock in between. The
// directory counts what is made in it: the contenders, and the record.
func (w written) is(old *stored, inner *lock.Held) bool {
	if w.off.Off(sabotage.RecordByContender) {
		return bytes.Equal(old.data, w.data)
	}
	if w.mzxid != 0 {
		return old.Mzxid == w.mzxid
	}
	before, ok1 := number(w.contender)
	now, ok2 := number(inner.Node())
	if !ok1 || !ok2 || !bytes.Equal(old.data, w.data) {
		return false
	}
	recordMade := w.token < old.Czxid && old.Czxid < inner.Token()
	return now-before == 1 || now-before == 2 && recordMade
}

// number returns the sequence number of a contender.
func number(contender string) (int64, bool) {
	const digits = 10
	if len(contender) < digits {
		return 0, false
	}
	n, err := strconv.ParseInt(contender[len(contender)-digits:], 10, 64)
	return n, err == nil
}

// unknown reports whether a write that ended so may have been carried out.
func unknown(err error) bool {
	return errors.Is(err, session.ErrUncertain) || errors.Is(err, session.ErrSessionExpired)
}

// settle finds out whether the write that was made last under the inner lock was carried out, and returns the
// record's metadata then. It looks when the write is not under way any more, unless that has brought an answer. Our contender
// must not have been released. An error says that it can't be told.
func (l *NonBlockingLease) settle(ctx context.Context, sent *sent) (stat session.Stat, done bool, err error) {
	stat, err = sent.wait(ctx)
	if err == nil || !unknown(err) {
		return stat, err == nil, nil
	}
	inc := sent.inner.Incarnation()
	look := func() error {
		if err := inc.Sync(ctx, l.path); err != nil {
			return err
		}
		var exists bool
		if exists, stat, err = inc.Exists(ctx, l.node); err != nil {
			return err
		}
		standing, own, err := inc.Exists(ctx, l.checked(ctx, sent.inner))
		if err == nil && !standing {
			err = session.ErrNoNode
		}
		done = exists && (stat.Mzxid == own.Mzxid || sabotage.Of(ctx).Off(sabotage.OutcomeByZxid))
		return err
	}
	for {
		err := look()
		if !errors.Is(err, session.ErrUncertain) && !errors.Is(err, session.ErrBusy) || ctx.Err() != nil {
			return stat, done, err
		}
		select {
		case <-time.After(betweenLooks):
		case <-ctx.Done():
		}
	}
}

// sortOut finds out, in the background, what became of a renewal, and lets the next method write then. Open is its write if
// the inner lock is still held.
func (l *NonBlockingLease) sortOut(ctx context.Context, h *Held, open *sent) {
	letGo := l.session.Hold()
	go func() {
		defer l.finish()
		defer letGo()
		life, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.opts.Duration+l.opts.Skew)
		defer cancel()
		defer h.forget()
		if open != nil {
			stat, done, err := l.settle(life, open)
			if err == nil {
				h.settled(stat, done)
			}
			released := open.inner.Release(life)
			if err == nil || released != nil {
				return
			}
		}
		err := l.locked(life, func(inner *lock.Held) error {
			_, old, err := l.read(life, inner.Incarnation())
			if err == nil && old != nil {
				h.ours(old, inner)
			}
			return err
		})
		if err != nil {
			l.opts.Logger.WarnContext(life, "it is not known what became of a renewal", "path", l.node, "error", err)
		}
	}()
}

// kept returns the write that a call has left under way with the inner lock still held, or nil.
func kept(ctx context.Context, err error) *sent {
	if u, ok := errors.AsType[*unknownError](err); ok && ctx.Err() != nil && !sabotage.Of(ctx).Off(sabotage.InnerLockKept) {
		return u.sent
	}
	return nil
}
