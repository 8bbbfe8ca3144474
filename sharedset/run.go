package sharedset

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kielgo/kiel/session"
)

// Run watches the set and publishes views until ctx ends; then it returns nil. It
// creates nothing: a set that does not exist is waited for. It returns an error only
// when the session has ended for good. A Set needs no more than one Run at a time.
func (s *Set) Run(ctx context.Context) error {
	for {
		inc, err := s.session.Incarnation(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // an orderly end
		}
		if err != nil {
			return fmt.Errorf("sharedset: watch %s: %w", s.path, err)
		}
		s.watch(ctx, inc)
	}
}

// watch reads the set again whenever there is reason to, as long as the incarnation
// lasts.
func (s *Set) watch(ctx context.Context, inc *session.Incarnation) {
	for ctx.Err() == nil && inc.Context().Err() == nil {
		view, watch, err := s.look(ctx, inc)
		switch {
		case ctx.Err() != nil, errors.Is(err, session.ErrClosed), session.Retryable(err):
			return // Run asks for the next incarnation
		case err != nil:
			// Refused, by an ACL for instance. Nothing tells when that changes.
			view = &View{Err: fmt.Errorf("sharedset: read %s: %w", s.path, err)}
		}
		s.keepLastGood(ctx, view)
		view.Incarnation, view.At = inc, time.Now()
		s.publish(view)
		s.answer()
		s.pause(ctx, inc, watch)
	}
}

// Refresh makes Run read the set again, after a Sync, and waits until the view is
// published. It returns an error when ctx ends before.
func (s *Set) Refresh(ctx context.Context) error {
	done := make(chan struct{})
	request := s.refresh
	for {
		select {
		case request <- done:
			request = nil
		case <-done:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("sharedset: refresh %s: %w", s.path, context.Cause(ctx))
		}
	}
}

// answer tells the callers of Refresh that what they asked for is published.
func (s *Set) answer() {
	for _, done := range s.refreshing {
		close(done)
	}
	s.refreshing = nil
}

// look reads the set and watches the znode, or its absence.
func (s *Set) look(ctx context.Context, inc *session.Incarnation) (*View, *session.Watch, error) {
	if len(s.refreshing) > 0 {
		if err := inc.Sync(ctx, s.path); err != nil {
			return nil, nil, err
		}
	}
	for {
		data, stat, watch, err := inc.GetW(ctx, s.path)
		if err == nil {
			view := &View{Exists: true, Czxid: stat.Czxid, Ctime: stat.Ctime, Mzxid: stat.Mzxid}
			if old := s.View(); old != nil && old.Err == nil && old.Mzxid == stat.Mzxid &&
				old.Incarnation.History() == inc.History() {
				view.Items = old.Items // decoded before
			} else {
				view.Items, view.Err = s.read(inc, data)
			}
			return view, watch, nil
		}
		if !errors.Is(err, session.ErrNoNode) {
			return nil, nil, err
		}
		exists, _, watch, err := inc.ExistsW(ctx, s.path)
		if err != nil {
			return nil, nil, err
		}
		if !exists {
			return &View{}, watch, nil
		}
		watch.Stop()
	}
}

// keepLastGood puts the last good state into a view that has an error.
func (s *Set) keepLastGood(ctx context.Context, view *View) {
	if view.Err == nil {
		return
	}
	old := s.View()
	if old == nil {
		old = &View{}
	}
	view.Items = old.Items
	if !errors.Is(view.Err, ErrUnreadable) {
		view.Exists, view.Czxid, view.Ctime, view.Mzxid = old.Exists, old.Czxid, old.Ctime, old.Mzxid
	}
	if errText(old.Err) != errText(view.Err) {
		s.logger.ErrorContext(ctx, "set not read, last good items stay", "error", view.Err, "items", len(view.Items))
	}
}

// pause waits for a hint of the watch. Without a watch it waits one session timeout.
func (s *Set) pause(ctx context.Context, inc *session.Incarnation, watch *session.Watch) {
	if watch != nil {
		defer watch.Stop()
		select {
		case <-watch.C():
		case done := <-s.refresh:
			s.refreshing = append(s.refreshing, done)
		case <-ctx.Done():
		}
		return
	}
	timer := time.NewTimer(inc.Timeout())
	defer timer.Stop()
	select {
	case <-timer.C:
	case done := <-s.refresh:
		s.refreshing = append(s.refreshing, done)
	case <-inc.Context().Done():
	case <-ctx.Done():
	}
}
