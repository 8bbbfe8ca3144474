package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

// errNotCompared says that the answer that has the servers' time did not come. Nothing was written but the contender.
var errNotCompared = errors.New("clocks were not compared")

// now returns the time of the lease's clock, in UTC.
func (l *NonBlockingLease) now() time.Time {
	if l.opts.Now != nil {
		return l.opts.Now().UTC().Round(0)
	}
	return l.clock().UTC().Round(0) // Round: the wall clock alone
}

// term is the time for which a lease is held, and the record that says so.
type term struct {
	started  time.Time    // its beginning, with the monotonic clock
	now      time.Time    // its beginning, on the lease's clock
	end      time.Time    // its end as the record has it
	until    time.Time    // the end of the hold, on the lease's clock
	deadline time.Time    // the end of the hold, on the monotonic clock
	data     []byte       // the record
	stat     session.Stat // the metadata of the record, after it was written
}

// newTerm returns a term that begins now.
func (l *NonBlockingLease) newTerm() (term, error) {
	t := term{started: time.Now(), now: l.now()}
	t = l.ending(t, t.now.Add(l.opts.Duration).Truncate(time.Second))
	if y := t.end.Year(); y < 1000 || y > 9999 {
		return term{}, fmt.Errorf("the lease would end in the year %d, which Python can't read", y)
	}
	return t, nil
}

// ending returns the term with another end.
func (l *NonBlockingLease) ending(t term, end time.Time) term {
	t.end = end
	t.until = t.end.Add(-l.opts.Skew)
	t.deadline = t.started.Add(t.until.Sub(t.now))
	t.data = Record{Version: version, Holder: l.opts.Identifier, End: t.end}.bytes()
	return t
}

// notBefore returns t, or a term that ends at floor if that is later.
func (l *NonBlockingLease) notBefore(t term, floor time.Time) term {
	if !t.end.Before(floor) {
		return t
	}
	return l.ending(t, floor)
}

// left returns how long the term may still be relied on, by the clock that says less.
func (t term) left(l *NonBlockingLease) time.Duration {
	return min(time.Until(t.deadline), t.until.Sub(l.now()))
}

// checkClock compares the local clock with that of the servers' leader. A change of a znode shows the leader's time: checkClock
// sets the contender, whose data stays the same.
func (l *NonBlockingLease) checkClock(ctx context.Context, inner *lock.Held) error {
	if l.opts.Now != nil {
		return nil
	}
	limit := l.opts.Skew / 2
	const tries = 3
	for try := 1; ; try++ {
		before := l.now()
		stat, err := inner.Incarnation().Set(ctx, inner.Node(), []byte(l.opts.Identifier), -1)
		switch {
		case errors.Is(err, session.ErrUncertain) && ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, session.ErrUncertain):
			return errNotCompared
		case err != nil:
			return err
		}
		// The leader set the contender between before and after, when its clock showed this time, or up to a millisecond more.
		after, leader := l.now(), time.UnixMilli(stat.Mtime)
		behind, ahead := leader.Add(time.Millisecond).Sub(before), after.Sub(leader)
		if behind <= limit && ahead <= limit {
			return nil
		}
		differ := behind+limit < 0 || ahead+limit < 0
		if differ || try == tries {
			return fmt.Errorf("%w: between %v and %v the servers' clock showed %v; tolerated are %v",
				ErrClockSkew, before.Format(time.StampMilli), after.Format(time.StampMilli), leader.UTC().Format(time.StampMilli), limit)
		}
	}
}
