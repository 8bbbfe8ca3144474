package ownership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/ownership/internal/machine"
	"github.com/kielgo/kiel/status"
)

// run is the body of Run.
func (l *loop) run(ctx context.Context) error {
	var cancel context.CancelFunc
	l.io, cancel = context.WithCancel(l.base)
	defer cancel()
	allocation, stopAllocator := context.WithCancel(l.base)
	defer stopAllocator()
	l.stopAllocator = stopAllocator
	var allocatorErr error
	allocatorDone := make(chan struct{})
	go func() {
		defer close(allocatorDone)
		allocatorErr = l.o.source.Run(allocation)
		l.post(func() { l.onAllocatorEnd(allocatorErr) })
	}()
	l.wg.Go(func() { l.followPlans(l.io) })
	l.wg.Go(func() { l.followSession(l.io) })
	l.o.metrics.info.WithLabelValues(l.o.source.Member(), version()).Set(1)

	l.handle(ctx)

	errs := l.abandon()
	if l.keeps && l.err == nil && len(errs) == 0 {
		l.o.source.Keep()
	}
	l.sayLeft()
	observed := l.o.users.observer.Close()
	bound, cancelBound := context.WithDeadline(l.base, l.deadline)
	defer cancelBound()
	stopErr := l.o.source.Stop(bound)
	if stopErr != nil && bound.Err() == nil {
		errs = append(errs, stopErr)
	}
	stopAllocator()
	close(l.done)
	cancel()
	errs = append(errs, l.await(bound, observed, allocatorDone)...)
	l.o.users.observer.Discard()
	l.o.users.onError.Discard()
	l.clearMetrics()
	select {
	case <-allocatorDone:
		l.err = cmp.Or(l.err, allocatorErr)
	default:
	}
	return errors.Join(append([]error{l.err}, errs...)...)
}

// await waits for what runs beside the loop, until ctx ends, and says what has not ended then.
func (l *loop) await(ctx context.Context, observed, allocatorDone <-chan struct{}) (errs []error) {
	workersDone := make(chan struct{})
	go func() {
		defer close(workersDone)
		l.wg.Wait()
	}()
	for _, part := range []struct {
		done <-chan struct{}
		name string
	}{
		{observed, "the observer"},
		{l.o.users.onError.Close(), "the error callback"},
		{workersDone, "the accept callback"},
		{allocatorDone, "the allocator"},
	} {
		select {
		case <-part.done:
			continue
		case <-ctx.Done():
		}
		select {
		case <-part.done: // after all
		default:
			errs = append(errs, fmt.Errorf("%w: %s has not returned", ErrStuck, part.name))
		}
	}
	return errs
}

// sayLeft has the Observer called with Left.
func (l *loop) sayLeft() {
	left := Event{Kind: Left, Version: l.version(), Err: exported(l.err)}
	if l.err == nil {
		left.Reason = statuswrite.Reason(status.Stopped)
	}
	if l.zk != nil {
		left.Session = l.zk.SessionID()
	}
	l.say(left)
}

// departure is how far the member is with leaving.
type departure struct {
	phase    phase
	err      error // with which Run ends
	deadline time.Time
	keeps    bool                         // the membership is to stay, if all is released in order
	overdue  map[kiel.Partition]time.Time // since when the handlers are to return that the cause of Run's end names

	stopAllocator context.CancelFunc
}

// startLeaving removes the member znode, unless it is to stay; then all is revoked.
func (l *loop) startLeaving() {
	if l.phase != working {
		return
	}
	l.phase = leaving
	l.o.leaving.Store(true)
	l.setDeadline()
	l.o.log.Info("leaving")
	if l.keeps {
		l.drainAll() // nobody else gets the partitions
		return
	}
	ctx, cancel := context.WithTimeout(l.io, l.o.opts.StopTimeout/4) // without ZooKeeper handlers must still be asked in time
	l.wg.Go(func() {
		defer cancel()
		err := l.o.source.Leave(ctx)
		l.post(func() {
			if err != nil {
				l.o.log.Warn("member znode not removed", "error", err)
				// Stop the allocator now, so that it retries while handlers finish. Normally it is stopped last, because its
				// callbacks may wait for handlers, and its own time to stop runs from then.
				l.stopAllocator()
			}
			l.drainAll()
		})
	})
}

// noteOverdue notes the handlers of which cause, and what it wraps, says that they were to return before.
func (l *loop) noteOverdue(cause error) {
	switch err := cause.(type) { //nolint:errorlint // each of them is wanted, not the first
	case *StuckError:
		l.overdue[err.Partition] = time.Now().Add(-err.For)
	case interface{ Unwrap() error }:
		l.noteOverdue(err.Unwrap())
	case interface{ Unwrap() []error }:
		for _, e := range err.Unwrap() {
			l.noteOverdue(e)
		}
	}
}

// wrapUp is how much of the time to leave is kept for the allocator and the callbacks, after the releases.
func wrapUp(stopTimeout time.Duration) time.Duration { return min(stopTimeout/10, time.Second) }

func (l *loop) setDeadline() {
	if l.deadline.IsZero() {
		l.deadline = time.Now().Add(l.o.opts.StopTimeout)
	}
}

// drainAll revokes everything.
func (l *loop) drainAll() {
	if l.phase == draining {
		return
	}
	l.phase = draining
	l.o.leaving.Store(true)
	l.setDeadline()
	l.setLevel(slices.Collect(maps.Values(l.parts)))
	for _, p := range l.parts {
		if p.overtime != nil && p.Handler != machine.Stuck {
			l.expectReturn(p) // there may be less time now
		}
		l.take(p, machine.Viewed, nil)
	}
}

// onAllocatorEnd ends Run when the allocator has ended by itself.
func (l *loop) onAllocatorEnd(err error) {
	if l.phase == working {
		l.err = err
		if err == nil {
			l.err = fmt.Errorf("%w: the allocator has ended", ErrStopped)
		}
		l.o.log.Error("allocator ended", "error", exported(l.err))
	}
	l.drainAll()
}

// abandon ends what is left when leaving is over, and returns errors for what did not end. When claims could not be released, it
// gives the session up.
func (l *loop) abandon() (errs []error) {
	standing := 0
	for _, id := range slices.SortedFunc(maps.Keys(l.parts), kiel.Partition.Compare) {
		p := l.parts[id]
		if p.overtime != nil {
			p.overtime.Stop()
		}
		if p.Handler != machine.None && p.Handler != machine.Resting {
			errs = append(errs, &StuckError{Partition: id, For: time.Since(p.asked)})
		}
		if l.zk != nil && !p.Stale && p.Claim != machine.Free && p.Claim != machine.Waiting {
			standing++
		}
		if c := p.claim; c != nil {
			t := turn{part: p, claim: c, in: machine.Overtime, err: ErrStuck}
			l.do(t, machine.End)
			l.do(t, machine.TellLost)
		}
	}
	if standing > 0 {
		err := fmt.Errorf("%w: %d claims are not released", ErrStuck, standing)
		l.o.session.GiveUp(err)
		errs = append(errs, err)
	}
	return errs
}

func (l *loop) clearMetrics() {
	m := l.o.metrics
	m.info.WithLabelValues(l.o.source.Member(), version()).Set(0)
	for _, reason := range reasons() {
		m.unclaimed.WithLabelValues(reason).Set(0)
	}
	m.stuck.Set(0)
	m.showUnowned(0, time.Time{})
	m.owner.CompareAndSwap(l.o, nil)
}
