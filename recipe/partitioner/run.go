package partitioner

import (
	"context"
	"errors"
	"fmt"

	"github.com/kielgo/kiel/session"
)

// Run divides the set, again and again, until ctx ends, and calls fn with the items that are
// ours each time, on its own goroutine. There may be no items. fn's context ends, with a
// cause, when they are to be given up; they are when fn has returned. An fn that returns nil
// before that is not called again until the set was divided anew.
//
// An error of fn's ends Run and is returned, unless it is fn's context's. Run goes on after
// an expired session and after MaxPartitionTime, and begins anew. Other failures it returns,
// such as ErrDuplicate and ErrFunction, as a [*FailedError]. When ctx has ended it returns
// nil. Whatever it returns, our znodes are gone then, or went with their session.
func (p *SetPartitioner) Run(ctx context.Context, fn func(ctx context.Context, items []string) error) error {
	if p.running.Swap(true) {
		return fmt.Errorf("partitioner: run %s: %w", p.path, ErrStarted)
	}
	defer p.running.Store(false)
	for {
		m, err := newMachine(ctx, p)
		if err != nil {
			return fmt.Errorf("partitioner: run %s: %w", p.path, err)
		}
		err = m.drive(ctx, fn)
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return nil
		case errors.Is(m.err, session.ErrSessionExpired), errors.Is(m.err, ErrPartitionTime):
			p.opts.Logger.InfoContext(ctx, "set partitioner begins anew", "path", p.path, "error", m.err)
		default:
			return p.failure("run", m.err)
		}
	}
}

// drive runs a machine until it fails, ctx ends, or fn returns an error, which it returns.
func (m *machine) drive(ctx context.Context, fn func(ctx context.Context, items []string) error) error {
	go func() {
		defer close(m.done)
		m.run()
	}()
	defer func() { // also when fn panics
		m.stop(ErrFinished)
		<-m.done
	}()
	for {
		now := m.p.Snapshot()
		switch now.State {
		case Acquired:
			if err := work(ctx, now.alloc, fn); err != nil {
				return err
			}
			fallthrough
		case Release:
			if m.release(ctx) == nil {
				continue
			}
		default:
		}
		select {
		case <-now.next:
		case <-m.done:
			return nil
		case <-ctx.Done():
			return nil
		}
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
