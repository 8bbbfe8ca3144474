package partitioner

import (
	"context"
	"errors"
	"time"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/recipe"
)

// Run divides the set, again and again, until ctx ends. Each time it calls fn with this member's items, on the goroutine that has
// called Run. There may be no items. fn's context ends, with a cause, when the items are to be given up; Run gives them up when
// fn has returned. The context has ctx's values, and [Hold] finds the allocation in it. If fn returns nil before its context has
// ended, Run does not call it again until the set was divided again.
//
// Once this partitioner has joined, Run outlasts what the servers refuse, by an ACL or a quota for instance: it logs the error
// and tries again, after pauses that grow to 5 s.
//
// Run returns an error of fn's, unless it says only that fn's context has ended. After an expired session and after
// MaxPartitionTime Run starts again. It returns other failures, such as ErrDuplicate and ErrFunction, as a [*FailedError]. When
// ctx has ended Run returns nil. When Run has returned, the znodes of this member and of its contenders are deleted, unless the
// error wraps ErrUnfinished.
//
// While the servers can't be reached, or refuse deletes, Run can't delete these znodes. Once Run is to end, and fn has returned,
// it tries for one session timeout. Then it returns ErrUnfinished, joined with fn's error, and goes on in the background; Start,
// Run and Finish wait for that. Run also returns ErrUnfinished when ctx ends before the znodes of an earlier Start or Run are
// deleted, and when the session's Run has ended first, because then nobody knows whether the servers have closed the session: in
// that case the znodes are deleted within one session timeout.
func (p *SetPartitioner) Run(ctx context.Context, fn func(ctx context.Context, items []string) error) (err error) {
	if fn == nil {
		return hold.Wrap(ctx, "partitioner", "run", p.path, recipe.ErrNoFunction)
	}
	m, err := p.begin(ctx, true)
	if err != nil {
		return operr.New("partitioner", "run", p.path, err)
	}
	defer func() { // runs also when fn panics
		m.stop(ErrFinished)
		if left := m.ended(); left != nil {
			err = errors.Join(err, operr.New("partitioner", "run", p.path, left))
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
		_ = m.release(ctx) // fails when ctx or m.ctx has ended
	}
	if ctx.Err() != nil {
		return nil
	}
	return p.failure("run", context.Cause(m.ctx))
}

// ended waits until the machine has ended, but for no longer than a server needs to end our session. It returns an error if a
// znode may be left.
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

// work calls fn. It returns when the allocation is over, or fn's error.
func work(ctx context.Context, a *Allocation, fn func(ctx context.Context, items []string) error) error {
	err, ended := hold.Under(ctx, a, func(ctx context.Context) error { return fn(ctx, a.Items()) })
	if err != nil && !ended {
		return err
	}
	select {
	case <-a.ctx.Done():
	case <-ctx.Done():
	}
	return nil
}
