package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

const (
	firstRetry = 10 * time.Millisecond
	longRetry  = time.Second
)

// call makes one request of go-zookeeper's and waits for its outcome, or for the end of ctx or of the ZooKeeper
// session. It is repeated while surely nothing was done; a read is also repeated when its reply was lost. f runs on a
// goroutine of its own, because go-zookeeper knows no contexts, and may still run when call has returned; what it
// returns to nobody is dropped.
func call[T any](ctx context.Context, c *client, write bool, f func(*zk.Conn) (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	var none T
	for retry := firstRetry; ; retry = min(2*retry, longRetry) {
		if err := c.ready(ctx); err != nil {
			return none, err
		}
		result := make(chan outcome, 1)
		started := c.start(func() {
			defer func() { <-c.calls }()
			value, err := f(c.zk)
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

// unfinished is the error of a request that was sent, or queued to be, and has no outcome.
func unfinished(write bool, cause error) error {
	if write {
		return fmt.Errorf("%w: %w", ErrUncertain, cause)
	}
	return cause
}

// ready waits until a request can be sent and takes a slot for it.
func (c *client) ready(ctx context.Context) error {
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
		// Waiting for the slot may have taken long.
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

// isLink reports whether up is still the present connection's.
func (c *client) isLink(up chan struct{}) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.up == up
}

// wait pauses before a repetition.
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
