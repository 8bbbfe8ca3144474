package partitioner

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Run divides the set, again and again, until ctx ends, and calls fn with the items that are
// ours each time, on the goroutine that has called Run. There may be no items. fn's context
// ends, with a cause, when they are to be given up; they are when fn has returned. It has ctx's
// values, and [Hold] finds the allocation in it. An fn that returns nil before its context has
// ended is not called again until the set was divided anew.
//
// An error of fn's ends Run and is returned, unless it is fn's context's. Run goes on after
// an expired session and after MaxPartitionTime, and begins anew. Other failures it returns,
// such as ErrDuplicate and ErrFunction, as a [*FailedError]. When ctx has ended it returns
// nil. Whatever it returns, our member and our contenders are gone then, or went with their
// session, unless it is an error that wraps ErrUnfinished.
//
// While the servers can't be reached, or refuse deletes, Run can't give up what we have. Once it is
// to end, and fn has returned, it tries for one session timeout. Then it returns ErrUnfinished,
// beside an error of fn's, and goes on in the background, for which Start, Run and Finish wait. It
// also does when what there was before it is not given up before ctx ends, and when the session's
// Run has ended first, as that can't tell whether the servers have heard of it: then all goes within
// one session timeout.
func (p *SetPartitioner) Run(ctx context.Context, fn func(ctx context.Context, items []string) error) (err error) {
	if fn == nil {
		return fmt.Errorf("partitioner: run %s: %w", p.path, ErrNoFunction)
	}
	m, err := p.begin(ctx, true)
	if err != nil {
		return fmt.Errorf("partitioner: run %s: %w", p.path, err)
	}
	defer func() { // also when fn panics
		m.stop(ErrFinished)
		if left := m.ended(); left != nil {
			err = errors.Join(err, fmt.Errorf("partitioner: run %s: %w", p.path, left))
		}
	}()
	for ctx.Err() == nil && m.ctx.Err() == nil {
		now := p.Snapshot()
		if now.State == Allocating {
			select {
			case <-now.next:
			case <-ctx.Done():
			}
			continue
		}
		if now.State == Acquired {
			if err := work(ctx, now.alloc, fn); err != nil {
				return err
			}
		}
		_ = m.release(ctx) // fails when one of the two contexts has ended
	}
	if ctx.Err() != nil {
		return nil
	}
	return p.failure("run", context.Cause(m.ctx))
}

// ended waits until the machine has ended, but for no longer than a server that works needs to end
// our session. It returns an error if something may be left.
func (m *machine) ended() error {
	timer := time.NewTimer(m.p.sess.Timeout())
	defer timer.Stop()
	select {
	case <-m.done:
		return m.left
	case <-timer.C:
		return ErrUnfinished
	}
}

// work calls fn and returns when the allocation is over, or with fn's error.
func work(ctx context.Context, a *Allocation, fn func(ctx context.Context, items []string) error) error {
	working, cancel := context.WithCancelCause(a.ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	err := fn(working, a.Items())
	if err != nil {
		ended := working.Err() != nil && (errors.Is(err, working.Err()) || errors.Is(err, context.Cause(working)))
		if !ended {
			return err
		}
	}
	<-working.Done()
	return nil
}
