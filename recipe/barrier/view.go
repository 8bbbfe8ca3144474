package barrier

import (
	"context"
	"errors"
	"slices"

	"github.com/kielgo/kiel/session"
)

const readyName = "ready"

// view is the state of a double barrier's directory at one read.
type view struct {
	dir     int64    // czxid of the directory, 0 when there is none
	members []string // names of the members, sorted
	ready   bool     // whether ready existed
	zxid    int64    // zxid at which the latest child was created or deleted
	creates int32    // how many children were ever created
	deletes int32    // how many children were ever deleted
	own     int32    // how many children we created after this read
}

// look reads the directory. The watch is nil when there is no directory.
func look(ctx context.Context, inc *session.Incarnation, path string) (*view, *session.Watch, error) {
	names, stat, watch, err := inc.ChildrenW(ctx, path)
	if errors.Is(err, session.ErrNoNode) {
		return &view{}, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	v := &view{
		dir:     stat.Czxid,
		zxid:    stat.Pzxid,
		creates: (stat.Cversion + stat.NumChildren) / 2, // a server counts both in cversion
		deletes: (stat.Cversion - stat.NumChildren) / 2,
	}
	for _, name := range names {
		if name == readyName {
			v.ready = true
		} else {
			v.members = append(v.members, name)
		}
	}
	return v, watch, nil
}

func (v *view) has(name string) bool {
	_, found := slices.BinarySearch(v.members, name)
	return found
}

// readiness says whether ready existed between two views.
type readiness int

const (
	waiting   readiness = iota // ready did not exist
	complete                   // ready existed, so the members of that moment have entered
	undecided                  // ready may have existed
	pending                    // ready may have existed, and is now about to be created: read again, and compare with the view before
)

// inferReady finds out whether ready existed at some time between two views. Members enter only when ready exists. Ready is
// created only when n members exist, own being one of them. inferReady reads the czxids of single members only if the views do
// not answer the question.
func inferReady(before, now *view, n int, own string, czxids func(names []string) ([]int64, error)) (readiness, error) {
	if now.ready {
		return complete, nil
	}
	if before.dir != 0 && before.dir != now.dir {
		return undecided, nil // the directory was deleted and created again
	}
	made := int(now.creates - before.creates)
	hidden := made
	for _, name := range now.members {
		if !before.has(name) {
			hidden--
		}
	}
	if hidden <= 0 { // all children that were created still exist
		return waiting, nil
	}
	born, err := czxids(now.members)
	if err != nil {
		return undecided, err
	}
	existed, last := 0, false
	for i, name := range now.members {
		last = last || born[i] == now.zxid
		switch {
		case !before.has(name):
		case born[i] <= before.zxid:
			existed++
		default:
			hidden-- // this one was deleted and created again under its name
		}
	}
	switch {
	case hidden <= 0:
		return waiting, nil
	case len(now.members) == n && last:
		// The member that completes the number came last. It has yet to create ready, whatever came and went before.
		return pending, nil
	case len(now.members) >= n, len(before.members) >= n && before.has(own):
		return complete, nil
	case len(before.members)+made-1 < n: // too few members, if one of the children was ready
		return waiting, nil
	case existed < n-1 || made-int(before.own) < 1 || !now.has(own):
		return undecided, nil
	}
	// The members that existed all the time existed together with each one that was created in between, also if that is gone now.
	return complete, nil
}
