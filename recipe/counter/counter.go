package counter

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"sync"

	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/session"
)

// Options configure a [Counter] of numbers of type V. The zero value works.
type Options[V any] struct {
	// Default is the number while the znode is missing or empty. Default: 0.
	Default V
}

// Change is one change of a counter.
type Change[V any] struct {
	Pre  V // the number before
	Post V // the number after
}

// Counter is a handle on one counter. V is int64, *big.Int, float64 or int32; the constructor determines the kind. Several
// goroutines may use a Counter.
type Counter[V any] struct {
	session *session.Session
	path    string
	initial V
	kind    kind[V]

	mu   sync.Mutex
	last *Change[V]
}

// New returns a handle on the counter of integers at path. The counter refuses numbers of more than 64 bits; for those, see
// [NewBig]. New checks its arguments and does no I/O. The session must be running for the methods to succeed.
func New(s *session.Session, path string, opts Options[int64]) (*Counter[int64], error) {
	return newCounter(s, path, opts, kind[int64](intKind{}))
}

// NewBig is [New] for integers of any size. The counter copies the numbers that it is given, and returns copies.
func NewBig(s *session.Session, path string, opts Options[*big.Int]) (*Counter[*big.Int], error) {
	if opts.Default == nil {
		opts.Default = new(big.Int)
	}
	return newCounter(s, path, opts, kind[*big.Int](bigKind{}))
}

// NewFloat returns a handle on the counter of floats at path; see [New].
func NewFloat(s *session.Session, path string, opts Options[float64]) (*Counter[float64], error) {
	return newCounter(s, path, opts, kind[float64](floatKind{}))
}

// NewCurator returns a handle on a counter at path in the format of Curator's SharedCount and of kazoo's Counter with
// support_curator; see [New].
func NewCurator(s *session.Session, path string, opts Options[int32]) (*Counter[int32], error) {
	return newCounter(s, path, opts, kind[int32](curatorKind{}))
}

func newCounter[V any](s *session.Session, path string, opts Options[V], k kind[V]) (*Counter[V], error) {
	if s == nil {
		return nil, operr.New("counter", "", "", errors.New("session is nil"))
	}
	if err := session.CheckPath(path); err != nil {
		return nil, operr.New("counter", "", "", err)
	}
	return &Counter[V]{session: s, path: path, initial: k.clone(opts.Default), kind: k}, nil
}

// Default returns the number of a missing or empty znode.
func (c *Counter[V]) Default() V { return c.kind.clone(c.initial) }

// Last returns the latest change that was made through this handle, and whether there was one. If several goroutines use the
// handle, the change may be another goroutine's.
func (c *Counter[V]) Last() (Change[V], bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		return Change[V]{}, false
	}
	return Change[V]{Pre: c.kind.clone(c.last.Pre), Post: c.kind.clone(c.last.Post)}, true
}

// Get returns the number. It creates nothing.
func (c *Counter[V]) Get(ctx context.Context) (V, error) {
	var none V
	for {
		inc, err := c.session.Incarnation(ctx)
		if err != nil {
			return none, c.wrap("get", err)
		}
		data, _, err := inc.Get(ctx, c.path)
		switch {
		case errors.Is(err, session.ErrNoNode):
			return c.Default(), nil
		case errors.Is(err, session.ErrSessionExpired) && ctx.Err() == nil:
			continue
		case errors.Is(err, session.ErrSessionExpired):
			return none, c.wrap("get", context.Cause(ctx))
		case err != nil:
			return none, c.wrap("get", err)
		}
		v, err := c.decode(data)
		if err != nil {
			return none, c.wrap("get", err)
		}
		return v, nil
	}
}

// Add adds delta and returns the new number. If the error wraps [session.ErrUncertain], delta may or may not have been added;
// after any other error it was not.
func (c *Counter[V]) Add(ctx context.Context, delta V) (V, error) {
	return c.change(ctx, "add", c.by(c.kind.add, delta))
}

// Subtract subtracts delta and returns the new number. Its errors are those of Add.
func (c *Counter[V]) Subtract(ctx context.Context, delta V) (V, error) {
	return c.change(ctx, "subtract", c.by(c.kind.subtract, delta))
}

// Set replaces the number by v, even if the data is not a number. Pre of [Counter.Last] is the number that was replaced, or the
// default if there was none. Its errors are those of Add.
func (c *Counter[V]) Set(ctx context.Context, v V) error {
	_, err := c.change(ctx, "set", c.to(v))
	return err
}

// Reset replaces the number by the default. Like all changes it deletes nothing. Its errors are those of Add.
func (c *Counter[V]) Reset(ctx context.Context) error {
	_, err := c.change(ctx, "reset", c.to(c.initial))
	return err
}

// step returns the change of a znode with the given data.
type step[V any] func(data []byte) (Change[V], error)

func (c *Counter[V]) by(op func(a, b V) (V, error), delta V) step[V] {
	delta = c.kind.clone(delta)
	return func(data []byte) (Change[V], error) {
		pre, err := c.decode(data)
		if err != nil {
			return Change[V]{}, err
		}
		post, err := op(pre, delta)
		return Change[V]{Pre: pre, Post: post}, err
	}
}

func (c *Counter[V]) to(v V) step[V] {
	v = c.kind.clone(v)
	return func(data []byte) (Change[V], error) {
		pre, err := c.decode(data)
		if err != nil {
			pre = c.Default()
		}
		return Change[V]{Pre: pre, Post: c.kind.clone(v)}, nil
	}
}

func (c *Counter[V]) decode(data []byte) (V, error) {
	if len(data) == 0 {
		return c.Default(), nil
	}
	return c.kind.decode(data)
}

// change reads, changes and writes until nobody else wrote in between.
func (c *Counter[V]) change(ctx context.Context, op string, next step[V]) (V, error) {
	var none V
	for {
		made, err := c.attempt(ctx, next)
		switch {
		case err == nil:
			c.mu.Lock()
			c.last = &made
			c.mu.Unlock()
			return c.kind.clone(made.Post), nil
		case errors.Is(err, session.ErrUncertain):
			return none, c.wrap(op, err)
		case errors.Is(err, session.ErrBadVersion), errors.Is(err, session.ErrNoNode), errors.Is(err, session.ErrSessionExpired):
			// Nothing was written: another process changed the znode, or it is missing, or the session has expired.
			if ctx.Err() != nil {
				return none, c.wrap(op, context.Cause(ctx))
			}
		default:
			return none, c.wrap(op, err)
		}
	}
}

// attempt tries the change once. After ErrBadVersion, ErrNoNode and ErrSessionExpired nothing was written.
func (c *Counter[V]) attempt(ctx context.Context, next step[V]) (Change[V], error) {
	inc, err := c.session.Incarnation(ctx)
	if err != nil {
		return Change[V]{}, err
	}
	data, seen, err := inc.Get(ctx, c.path)
	if errors.Is(err, session.ErrNoNode) {
		if err = inc.EnsurePath(ctx, c.path); errors.Is(err, session.ErrUncertain) && ctx.Err() == nil {
			err = nil // the next read shows the outcome
		}
		if err == nil {
			data, seen, err = inc.Get(ctx, c.path)
		}
		if errors.Is(err, session.ErrUncertain) {
			return Change[V]{}, context.Cause(ctx) // an empty znode has the default: the number did not change
		}
	}
	if err != nil {
		return Change[V]{}, err
	}
	made, err := next(data)
	if err != nil {
		return Change[V]{}, err
	}
	text := c.kind.encode(made.Post)
	now, err := inc.Set(ctx, c.path, text, seen.Version)
	if err == nil {
		err = c.same(seen, now)
	} else if errors.Is(err, session.ErrUncertain) {
		err = c.again(ctx, text, seen, err)
	}
	return made, err
}

// same checks that the znode that was written is the one that was read. If that znode was deleted and another with the same
// version was created, the write replaced a number that was not read.
func (c *Counter[V]) same(seen, now session.Stat) error {
	if now.Czxid == seen.Czxid {
		return nil
	}
	return fmt.Errorf("%w: the znode was deleted and created again just before the write", session.ErrUncertain)
}

// again repeats a write whose reply was lost, while the znode is as it was read before the first write. Both writes require that
// version, so only one of them can be carried out, however late the first arrives. If the znode has changed, again returns lost,
// because the change may be our write or another's.
func (c *Counter[V]) again(ctx context.Context, text []byte, seen session.Stat, lost error) error {
	for {
		inc, err := c.session.Incarnation(ctx)
		if err == nil {
			err = inc.Sync(ctx, c.path)
		}
		var exists bool
		var now session.Stat
		if err == nil {
			exists, now, err = inc.Exists(ctx, c.path)
		}
		if err == nil && (!exists || now.Version != seen.Version || now.Mzxid != seen.Mzxid) {
			return lost
		}
		if err == nil {
			if now, err = inc.Set(ctx, c.path, text, seen.Version); err == nil {
				return c.same(seen, now)
			}
		}
		again := errors.Is(err, session.ErrUncertain) || errors.Is(err, session.ErrSessionExpired)
		switch {
		case ctx.Err() == nil && again:
		case errors.Is(err, session.ErrUncertain):
			return err
		default:
			return operr.Because(session.ErrUncertain, err)
		}
	}
}

func (c *Counter[V]) wrap(op string, err error) error {
	return operr.New("counter", op, c.path, err)
}
