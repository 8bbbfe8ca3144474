package lease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

// Ends have full seconds, so two processes of one identifier can write the same bytes, and the bytes of a record don't show its
// owner. The zxid does: a write of the record also sets the owner's contender, and as long as the contender exists both have the
// same mzxid.

// betweenLooks is the pause before the outcome of a write is read again.
const betweenLooks = 100 * time.Millisecond

// call is one call of a method that writes the record.
type call struct {
	ctx     context.Context //nolint:containedctx // the caller's context, with which reads end, and after which no write begins
	life    context.Context //nolint:containedctx // the context of a write that has begun
	results chan error      // the caller's result; nil if no caller waits
	left    bool            // ctx ended during a write, so the caller has its result and waits no longer
	letGo   func()          // lets the session close
}

// carry waits until no other method of this handle writes, and calls f under the inner lock, in one goroutine. When f has begun
// to write, the goroutine carries the write to its end: after a write was given up before it was handed to the connection, its
// outcome can be verified only under the same inner lock. The caller waits for the end of f or of ctx, whichever is first. If f
// returns nil and the caller still waits, carry calls done. Otherwise it calls undo, with a context that lasts as long as a
// record of f can block anybody. The next method that writes waits for done and undo.
func (l *NonBlockingLease) carry(ctx context.Context, f func(c *call, inner *lock.Held) error, done func(), undo func(life context.Context)) error {
	if err := l.begin(ctx); err != nil {
		return err
	}
	longest := l.opts.Duration + l.opts.Skew
	life, end := pause.Outlast(ctx, longest)
	c := &call{ctx: ctx, life: life, results: make(chan error, 1), letGo: func() {}}
	go func() {
		defer l.finish()
		err := l.locked(ctx, func(inner *lock.Held) error { return f(c, inner) })
		end()
		defer func() { c.letGo() }()
		if err == nil && !c.left {
			done()
			c.results <- nil
			return
		}
		if !c.left {
			c.letGo = l.session.KeepOpen()
			c.results <- err
		}
		life, cancel := context.WithTimeout(context.WithoutCancel(ctx), longest)
		defer cancel()
		undo(life)
	}()
	return <-c.results
}

// send writes under the inner lock, unless the caller's context has ended, and verifies the outcome. The last operation writes
// the record, whose metadata send returns. If unknown reports true for the error, the outcome can't be verified.
func (l *NonBlockingLease) send(c *call, inner *lock.Held, ops []session.Op) (session.Stat, error) {
	if err := context.Cause(c.ctx); err != nil {
		return session.Stat{}, err
	}
	answered := make(chan struct{})
	stays := context.AfterFunc(c.ctx, func() {
		defer close(answered)
		if c.results != nil {
			c.letGo = l.session.KeepOpen()
			c.results <- operr.Because(session.ErrUncertain, context.Cause(c.ctx))
		}
	})
	defer func() {
		if !stays() {
			<-answered
			c.left = true
		}
	}()
	results, err := inner.Incarnation().Multi(c.life, ops...)
	switch {
	case err == nil:
		return results[len(results)-1].Stat, nil
	case !errors.Is(err, session.ErrUncertain):
		return session.Stat{}, err
	}
	stat, done, unsettled := l.settle(c.life, inner)
	switch {
	case unsettled != nil:
		return session.Stat{}, err
	case !done:
		return session.Stat{}, fmt.Errorf("%w: the record was not written", session.ErrBusy)
	}
	return stat, nil
}

// written is a record that a call has sent.
type written struct {
	contender string // the path of the call's contender
	token     int64  // the contender's czxid
	data      []byte // the record
	mzxid     int64  // the record's mzxid; 0 if its write was not confirmed
}

func newWritten(inner *lock.Held, data []byte) written {
	return written{contender: inner.Node(), token: inner.Token(), data: data}
}

// is reports whether old, which was read under a later inner lock, is surely this record. When the session of the write is over,
// the contender's mzxid is not known any more. The record is then this one only if nobody had the inner lock in between, as the
// sequence numbers of the two contenders show. The directory counts every child that is created in it: contenders, and the
// record.
func (w written) is(old *stored, inner *lock.Held) bool {
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

// number returns the sequence number at the end of a contender's path.
func number(contender string) (int64, bool) {
	const digits = 10
	if len(contender) < digits {
		return 0, false
	}
	n, err := strconv.ParseInt(contender[len(contender)-digits:], 10, 64)
	return n, err == nil
}

// unknown reports whether a write that ended with err may have been done.
func unknown(err error) bool {
	return errors.Is(err, session.ErrUncertain) || errors.Is(err, session.ErrSessionExpired)
}

// settle verifies whether the last write under the inner lock, whose request has returned, was done, and returns the record's
// metadata if so. The contender must not have been released. After an error the outcome is unknown.
func (l *NonBlockingLease) settle(ctx context.Context, inner *lock.Held) (stat session.Stat, done bool, err error) {
	inc := inner.Incarnation()
	look := func() error {
		if err := inc.Sync(ctx, l.path); err != nil {
			return err
		}
		var exists bool
		if exists, stat, err = inc.Exists(ctx, l.node); err != nil {
			return err
		}
		standing, own, err := inc.Exists(ctx, inner.Node())
		if err == nil && !standing {
			err = session.ErrNoNode
		}
		done = exists && stat.Mzxid == own.Mzxid
		return err
	}
	for {
		err := look()
		if !errors.Is(err, session.ErrUncertain) && !errors.Is(err, session.ErrBusy) || ctx.Err() != nil {
			return stat, done, err
		}
		_ = pause.Sleep(ctx, betweenLooks)
	}
}

// sortOut settles a pending renewal.
func (l *NonBlockingLease) sortOut(life context.Context, h *Held) {
	if !h.open() {
		return
	}
	defer h.forget()
	err := l.insist(life, func(inner *lock.Held) error {
		_, old, err := l.read(life, inner.Incarnation())
		if err == nil && old != nil {
			h.ours(old, inner)
		}
		return err
	})
	if err != nil {
		l.opts.Logger.WarnContext(life, "outcome of a renewal is unknown", "path", l.node, "error", err)
	}
}
