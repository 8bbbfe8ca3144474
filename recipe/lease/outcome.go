package lease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

// Ends have full seconds, so two processes of one identifier can write the same bytes: those don't tell whose a
// record is. What does is the zxid: a write of the record sets our contender, too, and while that stands
// both have the same.

// betweenLooks is the pause before another look at what became of a write.
const betweenLooks = 100 * time.Millisecond

// call is one call of a method that writes the record.
type call struct {
	ctx     context.Context //nolint:containedctx // the caller's: reads end with it, and no write begins after it
	life    context.Context //nolint:containedctx // a write that has begun ends with it
	results chan error      // for the caller, one
	left    bool            // ctx ended during a write: the caller has its result, and does not wait any more
	letGo   func()          // lets the session close, if left
}

// carry waits until no other method of this handle writes, and calls f under the inner lock, in one goroutine. Once f has begun to
// write, the goroutine carries that to its end: only what is done under the same inner lock can tell what became of a write that was given
// up before it was handed to the connection. The caller waits for the end of f or of ctx, whichever is first. Done is called when f has
// returned nil and the caller waits still, undo when f has failed or the caller does not wait: with a context that lasts as long as a
// record of f's can hold anybody off. The next method that writes waits for them.
func (l *NonBlockingLease) carry(ctx context.Context, f func(c *call, inner *lock.Held) error, done func(), undo func(life context.Context)) error {
	if err := l.begin(ctx); err != nil {
		return err
	}
	longest := l.opts.Duration + l.opts.Skew
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		_ = pause.Sleep(life, longest)
		end()
	})
	c := &call{ctx: ctx, life: life, results: make(chan error, 1), letGo: func() {}}
	go func() {
		defer l.finish()
		err := l.locked(ctx, func(inner *lock.Held) error { return f(c, inner) })
		stop()
		end()
		defer func() { c.letGo() }()
		if err == nil && !c.left {
			done()
			c.results <- nil
			return
		}
		if !c.left {
			c.letGo = l.session.Hold()
			c.results <- err
		}
		life, cancel := context.WithTimeout(context.WithoutCancel(ctx), longest)
		defer cancel()
		undo(life)
	}()
	return <-c.results
}

// send writes under the inner lock, unless the caller has given up before, and finds out what became of that. The last operation is
// that on the record, whose metadata it returns. If unknown reports true of the error, that can't be told.
func (l *NonBlockingLease) send(c *call, inner *lock.Held, ops []session.Op) (session.Stat, error) {
	if err := context.Cause(c.ctx); err != nil {
		return session.Stat{}, err
	}
	told := make(chan struct{})
	stays := context.AfterFunc(c.ctx, func() {
		defer close(told)
		if c.results != nil {
			c.letGo = l.session.Hold()
			c.results <- fmt.Errorf("%w: %w", session.ErrUncertain, context.Cause(c.ctx))
		}
	})
	defer func() {
		if !stays() {
			<-told
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

// written is a record that we have sent.
type written struct {
	contender string // ours, at that time
	token     int64  // its czxid
	data      []byte
	mzxid     int64 // of the record, when it is known that it was written
}

func newWritten(inner *lock.Held, data []byte) written {
	return written{contender: inner.Node(), token: inner.Token(), data: data}
}

// is reports whether a record is surely this one, seen under a later inner lock. When the first session is over the zxid
// of the contender is not known any more; then nobody may have had the inner lock in between. The
// directory counts what is made in it: the contenders, and the record.
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

// settle finds out whether the write that was made last under the inner lock, and has returned, was carried out, and returns
// the record's metadata then. Our contender must not have been released. An error says that it can't be told.
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
		select {
		case <-time.After(betweenLooks):
		case <-ctx.Done():
		}
	}
}

// sortOut finds out what became of a renewal whose outcome is not known yet.
func (l *NonBlockingLease) sortOut(life context.Context, h *Held) {
	if !h.open() {
		return
	}
	defer h.forget()
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
}
