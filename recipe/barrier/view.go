package barrier

import (
	"context"
	"errors"
	"slices"

	"github.com/kielgo/kiel/session"
)

const readyName = "ready"

// view is what one look at a double barrier's directory showed.
type view struct {
	dir     int64    // czxid of the directory, 0 when there is none
	members []string // sorted, without ready
	ready   bool
	zxid    int64 // of the latest child that came or went
	creates int32 // how many children were ever made
	deletes int32 // how many ever went
	own     int32 // how many we made after this look
}

// look lists the directory, with a watch unless there is none.
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

// verdict is what two views tell about the time from one to the other.
type verdict int

const (
	waiting   verdict = iota // the number was never complete, or nobody was told
	complete                 // it was, and who waited was told
	undecided                // that may have been
	pending                  // that may have been, but now it is about to be: look again, and compare with before
)

// judge tells whether ready stood at some time between two looks. Nobody has entered before
// that, and it is made only when n members stand, own being one of them. It asks for the
// czxids of single members only when it must.
func judge(before, now *view, n int, own string, czxids func(names []string) ([]int64, error)) (verdict, error) {
	if now.ready {
		return complete, nil
	}
	if before.dir != 0 && before.dir != now.dir {
		return undecided, nil // the directory was made anew
	}
	made := int(now.creates - before.creates)
	hidden := made
	for _, name := range now.members {
		if !before.has(name) {
			hidden--
		}
	}
	if hidden <= 0 { // all that came still stands
		return waiting, nil
	}
	born, err := czxids(now.members)
	if err != nil {
		return undecided, err
	}
	stood, last := 0, false
	for i, name := range now.members {
		last = last || born[i] == now.zxid
		switch {
		case !before.has(name):
		case born[i] <= before.zxid:
			stood++
		default:
			hidden-- // it went and came again under its name
		}
	}
	switch {
	case hidden <= 0:
		return waiting, nil
	case len(now.members) == n && last:
		// The member that completes the number is the last that came: it has yet to make
		// ready, whatever was hidden before.
		return pending, nil
	case len(now.members) >= n, len(before.members) >= n && before.has(own):
		return complete, nil
	case len(before.members)+made-1 < n: // too few, should one of them have been ready
		return waiting, nil
	case stood < n-1 || made-int(before.own) < 1 || !now.has(own):
		return undecided, nil
	}
	// Those who stood all the time stood together with each that was made in between, even
	// if that is gone.
	return complete, nil
}
