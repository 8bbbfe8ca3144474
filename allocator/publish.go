package allocator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kielgo/kiel/session"
)

// emit publishes a snapshot of the last good mapping, read under inc. applied
// says that the mapping is new.
func (l *loop) emit(t Trigger, inc *session.Incarnation, joined, applied bool) {
	l.finish(t, inc, joined, applied, nil)
}

// republish publishes the last snapshot again, with the errors there are now.
// It stays joined only if stay is true.
func (l *loop) republish(t Trigger, stay bool) {
	if l.last != nil {
		l.finish(t, l.last.Incarnation, l.last.Joined && stay, false, nil)
	}
}

// finish is emit with the error for which Run ends.
func (l *loop) finish(t Trigger, inc *session.Incarnation, joined, applied bool, end error) {
	errs := []error{end, l.computeErr, l.itemsErr}
	l.report("compute", l.computeErr)
	l.report("items", l.itemsErr)
	if l.members != nil && end == nil {
		errs = append(errs, l.members.NameHeld)
		l.report("name", l.members.NameHeld)
	}
	if l.set != nil {
		errs = append(errs, l.set.Err)
		l.report("set", l.set.Err)
	}
	if l.zones != nil {
		errs = append(errs, l.zones.Err)
		l.report("zones", l.zones.Err)
	}
	l.lost = nil
	if inc != nil {
		life := l.src.lifetime(inc)
		if life.Err() != nil {
			lost := fmt.Errorf("allocator: the session is not trusted: %w", context.Cause(life))
			errs = append(errs, lost)
			l.report("session", lost)
			joined = false
		} else {
			l.lost = life.Done()
			l.report("session", nil)
		}
	}
	s := &Snapshot{
		Version: 1, Trigger: t, At: time.Now(),
		Members: l.good.members, Partitions: l.good.in.Partitions, Unwanted: l.good.unwanted, Zones: l.good.in.Zones, Func: l.good.fn,
		Joined: joined, Incarnation: inc, Err: errors.Join(errs...), mapping: l.good,
	}
	if joined {
		s.mine = l.good.share(l.name)
	}
	moved := len(s.mine) > 0
	if l.last != nil {
		s.Version = l.last.Version + 1
		moved = !slices.Equal(s.mine, l.last.mine)
	}
	l.last = s
	l.publish(s)
	l.log.Info("snapshot", "snapshot", s)
	if applied || moved {
		l.delivery.snapshot(s)
	}
}

// report tells the user of an error, once until it changes or has gone.
func (l *loop) report(about string, err error) {
	if l.reported[about] == text(err) {
		return
	}
	l.reported[about] = text(err)
	if err != nil {
		l.log.Warn("degraded", "about", about, "error", err)
		l.delivery.error(err)
	}
}
