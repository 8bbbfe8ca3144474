package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/internal/operr"
)

const (
	firstRetry = 10 * time.Millisecond
	longRetry  = time.Second
)

// call sends the request f through go-zookeeper, and waits for its outcome, or for the end of ctx or of the ZooKeeper session.
// call repeats f while surely nothing was done; a read also when its reply was lost. w is what f writes, nil for a read.
//
// f runs on a goroutine of its own, because go-zookeeper knows no contexts. f may still run when call has returned; its result is
// then dropped. A write that its caller gave up may not even be in go-zookeeper's queue at that time. So later calls wait for its
// outcome: a read that looks for a write must be sent after it.
func call[T any](ctx context.Context, c *client, w *sending, f func(*zk.Conn) (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	var none T
	write := w != nil
	for retry := firstRetry; ; retry = min(2*retry, longRetry) {
		if err := c.admit(ctx, w); err != nil {
			return none, err
		}
		if err := c.ready(ctx); err != nil {
			return none, err
		}
		result, over := make(chan outcome, 1), make(chan struct{})
		started := c.start(func() {
			defer func() { <-c.calls }()
			defer close(over)
			value, err := send(c, w, f)
			result <- outcome{value, err}
		})
		if !started {
			<-c.calls
			return none, context.Cause(c.ctx)
		}
		var err error
		select {
		case r := <-result:
			if r.err == nil {
				return r.value, nil
			}
			err = serverError(r.err)
		case <-ctx.Done():
			if write {
				c.giveUpOn(over)
			}
			return none, unfinished(write, context.Cause(ctx))
		case <-c.ctx.Done():
			return none, unfinished(write, context.Cause(c.ctx))
		}
		switch {
		case errors.Is(err, ErrSessionExpired):
			c.expire()
			return none, err
		case errors.Is(err, errLost):
			if c.ctx.Err() != nil {
				return none, unfinished(write, context.Cause(c.ctx))
			}
			if write {
				return none, unfinished(write, err)
			}
		case errors.Is(err, errUnclear):
			return none, unfinished(write, err)
		case !errors.Is(err, ErrBusy):
			return none, err
		}
		if err := c.wait(ctx, retry); err != nil {
			return none, err
		}
	}
}

// send calls f, and records the outcome of w if it is a large write.
func send[T any](c *client, w *sending, f func(*zk.Conn) (T, error)) (T, error) {
	if !w.large() {
		return f(c.zk)
	}
	c.s.oversized.begin(*w)
	value, err := f(c.zk)
	lost := serverError(err)
	unanswered := errors.Is(lost, errLost) || errors.Is(lost, ErrBusy) || errors.Is(lost, ErrSessionExpired)
	c.s.oversized.end(*w, !unanswered, c.s.now())
	return value, err
}

// unfinished returns the error of a request that was sent, or queued for sending, and has no known outcome.
func unfinished(write bool, cause error) error {
	if write {
		return operr.Because(ErrUncertain, cause)
	}
	return cause
}

// giveUpOn records a write whose caller has given up waiting. over is closed when the write has an outcome.
func (c *client) giveUpOn(over <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.givenUp = append(c.givenUp, over)
}

// afterGivenUp waits for the outcomes of the writes that were given up so far. Answers come in order, so that takes no longer
// than one request.
func (c *client) afterGivenUp(ctx context.Context) error {
	c.mu.Lock()
	c.givenUp = slices.DeleteFunc(c.givenUp, func(over <-chan struct{}) bool {
		select {
		case <-over:
			return true
		default:
			return false
		}
	})
	givenUp := slices.Clone(c.givenUp)
	c.mu.Unlock()
	for _, over := range givenUp {
		select {
		case <-over:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
	}
	return nil
}

// ready waits until a request can be sent and takes a slot for it.
func (c *client) ready(ctx context.Context) error {
	if err := c.afterGivenUp(ctx); err != nil {
		return err
	}
	for {
		c.mu.Lock()
		up := c.up
		c.mu.Unlock()
		select {
		case <-up:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
		select {
		case c.calls <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
		// While the slot was waited for, the connection may have been lost or ctx ended.
		select {
		case <-up:
			if ctx.Err() == nil && c.isLink(up) {
				return nil
			}
		default:
		}
		<-c.calls
	}
}

// isLink reports whether up still belongs to the present connection.
func (c *client) isLink(up chan struct{}) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.up == up
}

// wait waits for d before a request is repeated.
func (c *client) wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
}
