package partitioner

import (
	"context"
	"errors"
	"fmt"
	"time"

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
// nil. Whatever it returns, our znodes are gone then, or went with their session, unless it is
// an error that wraps ErrUnfinished.
//
// While the servers can't be reached Run waits for them to give up what we have: until ctx has
// ended and then, once fn has returned, for one session timeout. Then it returns
// ErrUnfinished, beside an error of fn's, and goes on in the background; until that is done
// Start and Run return ErrStarted.
func (p *SetPartitioner) Run(ctx context.Context, fn func(ctx context.Context, items []string) error) error {
	if fn == nil {
		return fmt.Errorf("partitioner: run %s: %w", p.path, ErrNoFunction)
	}
	if p.running.Swap(true) {
		return fmt.Errorf("partitioner: run %s: %w", p.path, ErrStarted)
	}
	var m *machine
	defer func() { p.stopped(m) }() // also when fn panics
	for {
		next, err := newMachine(ctx, p)
		if err != nil {
			return fmt.Errorf("partitioner: run %s: %w", p.path, err)
		}
		m = next
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

// stopped lets others start once m, the last machine of a Run, has ended.
func (p *SetPartitioner) stopped(m *machine) {
	if m == nil {
		p.running.Store(false)
		return
	}
	select {
	case <-m.done:
		p.running.Store(false)
	default:
		go func() {
			<-m.done
			p.running.Store(false)
		}()
	}
}

// drive runs a machine until it fails, ctx ends, or fn returns an error, which it returns. It
// returns ErrUnfinished if the machine has not ended then.
func (m *machine) drive(ctx context.Context, fn func(ctx context.Context, items []string) error) (err error) {
	go func() {
		defer close(m.done)
		m.run()
	}()
	defer func() { // also when fn panics
		m.stop(ErrFinished)
		if !m.ended(ctx) {
			unfinished := fmt.Errorf("partitioner: run %s: %w", m.p.path, ErrUnfinished)
			err = errors.Join(err, unfinished)
		}
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

// ended waits until the machine has ended, but after the end of ctx for no longer than a server
// that works needs to end our session.
func (m *machine) ended(ctx context.Context) bool {
	select {
	case <-m.done:
		return true
	case <-ctx.Done():
	}
	timer := time.NewTimer(m.p.sess.Timeout())
	defer timer.Stop()
	select {
	case <-m.done:
		return true
	case <-timer.C:
		return false
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
