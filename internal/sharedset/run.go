package sharedset

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/session"
)

// Run watches the set and publishes views until ctx ends; then it returns nil. It creates nothing, and waits for a set that does
// not exist. It returns an error only when the session has ended for good. A second call returns [kiel.ErrRunTwice].
func (s *Set) Run(ctx context.Context) error { return s.reader.Run(ctx) }

// Refresh makes Run read the set again, after a Sync, and waits until the view is published. It returns an error when ctx ends
// before.
func (s *Set) Refresh(ctx context.Context) error { return s.reader.Refresh(ctx) }

// View returns the newest view, or nil before the first read. It never blocks.
func (s *Set) View() *View { return s.reader.View() }

// Updates yields the newest view, and then each newer one that differs in content, in DataVersion or in incarnation. A slow
// caller misses some, but always gets to the latest. It ends when ctx does or the caller breaks off. Any number may run at once.
func (s *Set) Updates(ctx context.Context) iter.Seq[*View] { return s.reader.Updates(ctx) }

// look reads the set and watches the znode, or its absence. Unless a watch has reported a change, it reads the metadata first,
// and the data only if the metadata are not those of the last read.
func (s *Set) look(ctx context.Context, inc *session.Incarnation, changed bool) (*View, *session.Watch, error) {
	old := s.View()
	if old != nil && old.Incarnation.History() != inc.History() {
		old = nil // a server that was restored may give the same zxids to other data
	}
	if old != nil && !changed {
		exists, stat, watch, err := inc.ExistsW(ctx, s.path)
		switch {
		case err != nil:
			return nil, nil, err
		case !exists:
			return &View{}, watch, nil
		case old.stamp == stampOf(stat):
			return old.again(), watch, nil
		}
		watch.Stop()
	}
	return s.readW(ctx, inc, old)
}

// readW reads the set's data and watches the znode, or its absence. It does not decode the data of old again.
func (s *Set) readW(ctx context.Context, inc *session.Incarnation, old *View) (*View, *session.Watch, error) {
	for {
		data, stat, watch, err := inc.GetW(ctx, s.path)
		if err == nil {
			if old != nil && old.stamp == stampOf(stat) {
				return old.again(), watch, nil
			}
			v := viewOf(stat)
			if v.Items, err = decodeFor(inc, data); err != nil {
				v.Err = operr.New("sharedset", "read", s.path, err)
			}
			return v, watch, nil
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

// complete fills in the fields of v that depend on the view before it.
func (s *Set) complete(_ context.Context, inc *session.Incarnation, before, v *View) {
	s.keepLastGood(before, v)
	v.Incarnation, v.At = inc, time.Now()
	switch {
	case before == nil:
		v.Version = 1
	case before.sameContent(v):
		v.Version, v.Items = before.Version, before.Items // one copy of the items is enough
	default:
		v.Version = before.Version + 1
	}
}

// keepLastGood puts the last good state into a view that has an error, and logs that error.
func (s *Set) keepLastGood(old, view *View) {
	if view.Err == nil {
		s.errs.OK(kindSet, "")
		return
	}
	if old == nil {
		old = &View{}
	}
	view.Items = old.Items
	if !errors.Is(view.Err, ErrUnreadable) {
		view.Exists, view.Czxid, view.Ctime, view.Mzxid = old.Exists, old.Czxid, old.Ctime, old.Mzxid
		view.DataVersion = old.DataVersion
	}
	if errText(old.Err) != errText(view.Err) {
		s.errs.Failed(kindSet, "", view.Err, "kept_items", len(view.Items))
	}
}
