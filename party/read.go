package party

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kielgo/kiel/internal/sabotage"
	"github.com/kielgo/kiel/internal/watched"
	"github.com/kielgo/kiel/session"
)

const (
	// readers is how many members are read at a time.
	readers = 16
	// auditSize is how many members are looked at, in turn, when nothing is new
	// in the directory.
	auditSize = 16
)

// record is a member as it was read.
type record struct {
	Member
	version int32
}

// list returns the names of the members and the directory's metadata. While the watch of the last listing stands, and the
// metadata are those of the last reading, the names are those of the last reading, too.
func (l *loop) list(ctx context.Context) ([]string, session.Stat, error) {
	if l.watch != nil && open(l.watch) {
		exists, now, err := l.inc.Exists(ctx, l.path)
		if err != nil {
			return nil, session.Stat{}, err
		}
		if exists && watched.SameChildren(now, l.directory) {
			return l.names, now, nil
		}
	}
	l.unwatch()
	names, directory, watch, err := l.inc.ChildrenLasting(ctx, l.path)
	l.watch = watch
	return names, directory, err
}

func open(watch *session.Watch) bool {
	select {
	case <-watch.C():
		return false
	default:
		return true
	}
}

// unwatch lets go of the watch of the last listing.
func (l *loop) unwatch() {
	if l.watch != nil {
		l.watch.Stop()
		l.watch = nil
	}
}

// read reads the members that are new or may have changed.
//
// Whether one that stays in the list was deleted and made again meanwhile is
// told by the directory's cversion, which counts what was made and deleted in
// it: if it says more than names that came and went explain, all are looked
// at. That costs one watch per party instead of one per pair of members.
// Against records changed in place, which nobody should do, a few members are
// looked at whenever there is nothing else to do, and our own always.
func (l *loop) read(ctx context.Context, names []string, directory session.Stat) (View, error) {
	slices.Sort(names)
	came, went := differ(l.names, names)
	explained := directory.Czxid == l.directory.Czxid && directory.Cversion-l.directory.Cversion == int32(came+went)
	if l.off.Off(sabotage.ByCzxid) {
		explained = true
	}
	var audit []string
	if explained && came+went == 0 {
		audit = l.nextAudit(names)
	}
	var look []string
	for _, name := range names {
		if _, known := l.members[name]; !known || !explained || name == l.name || slices.Contains(audit, name) {
			look = append(look, name)
		}
	}
	if err := l.lookAt(ctx, look); err != nil {
		return View{}, err
	}
	view := View{Incarnation: l.inc, At: time.Now(), Members: make([]Member, 0, len(names))}
	next := make(map[string]record, len(names))
	for _, name := range names {
		if r, ok := l.members[name]; ok {
			next[name] = r
			view.Members = append(view.Members, r.Member)
		}
	}
	l.members, l.names, l.directory, l.readAt = next, names, directory, view.At
	return view, nil
}

// differ counts the names that are only in b and those that are only in a.
// Both are sorted.
func differ(a, b []string) (came, went int) {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] == b[0]:
			a, b = a[1:], b[1:]
		case a[0] < b[0]:
			a, went = a[1:], went+1
		default:
			b, came = b[1:], came+1
		}
	}
	return came + len(b), went + len(a)
}

// nextAudit returns the names whose turn it is.
func (l *loop) nextAudit(names []string) []string {
	start, _ := slices.BinarySearch(names, l.audited)
	audit := names[start:min(len(names), start+auditSize)]
	l.audited = ""
	if start+auditSize < len(names) {
		l.audited = names[start+auditSize]
	}
	return audit
}

// lookAt brings the records of these names up to date in l.members; those that
// are gone are deleted from it. With an error nothing has changed. It returns
// when all its reads have ended.
func (l *loop) lookAt(ctx context.Context, names []string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type result struct {
		record
		exists bool
	}
	results := make([]result, len(names))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(readers, len(names)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(names)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				r, exists, err := l.lookAtOne(ctx, names[i])
				if err != nil {
					cancel(err)
				}
				results[i] = result{r, exists}
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for i, name := range names {
		if results[i].exists {
			l.members[name] = results[i].record
		} else {
			delete(l.members, name)
		}
	}
	return nil
}

// lookAtOne reads a member, or finds that it is as known, or gone. It runs on
// many goroutines and changes nothing of l.
func (l *loop) lookAtOne(ctx context.Context, name string) (r record, exists bool, err error) {
	path := session.Join(l.path, name)
	if known, ok := l.members[name]; ok && known.Czxid != 0 {
		exists, stat, err := l.inc.Exists(ctx, path)
		if err != nil || !exists {
			return record{}, false, err
		}
		readable := known.Err == nil || errors.Is(known.Err, ErrRecordTooLarge)
		if stat.Mzxid == known.Mzxid && readable {
			return known, true, nil
		}
	}
	r = record{Member: Member{Name: name}}
	data, stat, err := l.inc.Get(ctx, path)
	switch {
	case err == nil && len(data) > maxRecord:
		r.Err = ErrRecordTooLarge
	case err == nil:
		r.Data = data
	case errors.Is(err, session.ErrNoNode):
		return record{}, false, nil
	case !unreadable(ctx, err):
		return record{}, false, err
	default:
		// It is a member all the same, and who it is can be seen without the
		// right to read it.
		r.Err = err
		if exists, stat, err = l.inc.Exists(ctx, path); err != nil && !unreadable(ctx, err) {
			return record{}, false, err
		} else if err == nil && !exists {
			return record{}, false, nil
		}
	}
	r.Czxid, r.Mzxid, r.Session, r.version = stat.Czxid, stat.Mzxid, stat.EphemeralOwner, stat.Version
	return r, true, nil
}

// unreadable says whether err is about the znode and not about the connection.
func unreadable(ctx context.Context, err error) bool {
	return ctx.Err() == nil && session.Classify(err) == session.ClassFatal && !errors.Is(err, session.ErrClosed)
}
