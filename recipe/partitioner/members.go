package partitioner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kielgo/kiel/session"
)

// view is the party at one read.
type view struct {
	inc      *session.Incarnation
	children []string
	stat     session.Stat
	watch    *session.Watch
}

// same reports whether no member came or went between two reads.
func same(a, b session.Stat) bool { return a.Czxid == b.Czxid && a.Pzxid == b.Pzxid }

// look reads the party.
func (m *machine) look(ctx context.Context, inc *session.Incarnation) (view, error) {
	dir := session.Join(m.p.path, "party")
	for {
		children, stat, watch, err := inc.ChildrenW(ctx, dir)
		if errors.Is(err, session.ErrNoNode) {
			err = inc.EnsurePath(ctx, dir)
			if err == nil || errors.Is(err, session.ErrUncertain) && ctx.Err() == nil {
				continue
			}
		}
		return view{inc: inc, children: children, stat: stat, watch: watch}, err
	}
}

// quiet waits until the party has not changed for the time boundary, and returns it.
func (m *machine) quiet(ctx context.Context) (view, error) {
	for {
		inc, err := m.incarnation(ctx)
		if err != nil {
			return view{}, err
		}
		v, err := m.look(ctx, inc)
		if err != nil {
			return view{}, err
		}
		calm, err := m.calm(ctx, &v)
		if calm && inc.Trusted() {
			return v, nil
		}
		v.watch.Stop()
		if err != nil {
			return view{}, err
		}
	}
}

// calm waits for the time boundary, and reports whether the members are still those of v. Watches that fire without a change of
// members do not count.
func (m *machine) calm(ctx context.Context, v *view) (bool, error) {
	timer := time.NewTimer(m.p.opts.TimeBoundary)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return true, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-v.watch.C():
		}
		if v.inc.Context().Err() != nil {
			return false, nil
		}
		now, err := m.look(ctx, v.inc)
		if err != nil {
			return false, err
		}
		v.watch.Stop()
		if v.watch = now.watch; !same(now.stat, v.stat) {
			return false, nil
		}
	}
}

// monitor returns when the members have changed, at the deadline unless that is zero, when the incarnation ends, and when ctx
// ends. Until acquired is closed it also reads the members once per reaction time; after that it relies on the watch.
func (m *machine) monitor(ctx context.Context, acquired <-chan struct{}, v view, deadline time.Time) error {
	ticker := time.NewTicker(m.p.opts.MaxReactionTime)
	defer ticker.Stop()
	defer func() { v.watch.Stop() }()
	var due <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		due = timer.C
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-v.inc.Context().Done():
			return context.Cause(v.inc.Context())
		case <-due:
			return fmt.Errorf("%w: another member with the same identifier stays", ErrMembersChanged)
		case <-acquired:
			acquired = nil
			ticker.Stop()
			continue
		case <-ticker.C:
		case <-v.watch.C():
		}
		now, err := m.look(ctx, v.inc)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case v.inc.Context().Err() != nil:
			return context.Cause(v.inc.Context())
		case err != nil:
			return err
		}
		v.watch.Stop()
		if v.watch = now.watch; !same(now.stat, v.stat) {
			return ErrMembersChanged
		}
	}
}
