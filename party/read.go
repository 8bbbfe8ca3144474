package party

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/watched"
	"github.com/kielgo/kiel/session"
)

const (
	// readers is how many members are read at the same time.
	readers = 16
	// auditSize is how many members are checked, in turn, when nothing is new in the directory.
	auditSize = 16
)

// record is a member as it was read.
type record struct {
	Member
	version int32 // of the znode's data
}

// list returns the names of the members and the directory's metadata. If the watch of the last listing has not fired, and the
// metadata are those of the last reading, list does not list the names again.
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

// open reports whether a watch has not fired.
func open(watch *session.Watch) bool {
	select {
	case <-watch.C():
		return false
	default:
		return true
	}
}

// unwatch stops the watches.
func (l *loop) unwatch() {
	l.unwatchGuard()
	if l.watch != nil {
		l.watch.Stop()
		l.watch = nil
	}
}

// read reads the members that are new or may have changed, and returns the view.
//
// Members whose records are known by their hashes need no reading. Of the others, a member that stays in the list may have been
// deleted and created again meanwhile. The directory's cversion shows that, because it counts children created and deleted: if it
// has grown by more than the names that came and went, read checks all of them. So a party needs one watch instead of one for
// each other member. Nobody should change a record in place, but somebody may: so read checks a few of them whenever nothing is
// new, and this member's record always.
func (l *loop) read(ctx context.Context, names []string, directory session.Stat) (View, error) {
	if err := l.listRecords(ctx, len(names) == 1 && names[0] == l.name); err != nil {
		return View{}, err
	}
	return l.readListed(ctx, names, directory)
}

// readListed is read after listRecords.
func (l *loop) readListed(ctx context.Context, names []string, directory session.Stat) (View, error) {
	slices.Sort(names)
	if !watched.SameChildren(directory, l.directory) {
		l.records.misfit = nil
	}
	members, err := l.membersOf(ctx, names, directory)
	if err != nil {
		return View{}, err
	}
	view := View{Incarnation: l.inc, At: time.Now(), Members: members}
	l.names, l.directory, l.readAt = names, directory, view.At
	return view, nil
}

// membersOf returns the members of those names. While the znode of each of them has to be read, none is known by its hash.
func (l *loop) membersOf(ctx context.Context, names []string, directory session.Stat) (members []Member, err error) {
	if !l.single {
		var hashed []Member
		if hashed, err = l.byHash(ctx, names); err != nil {
			return nil, err
		}
		members, err = l.assemble(ctx, names, directory, hashed)
		if err != nil || len(hashed) == 0 || l.singly == nil || !l.singly(members) {
			return members, err
		}
		l.single = true
	}
	members, err = l.assemble(ctx, names, directory, nil)
	l.single = err != nil || l.singly(members)
	return members, err
}

// assemble returns the members of those names: some as they are known by hash, sorted, the others read as far as needed.
func (l *loop) assemble(ctx context.Context, names []string, directory session.Stat, hashed []Member) ([]Member, error) {
	came, went := differ(l.names, names)
	explained := directory.Czxid == l.directory.Czxid && directory.Cversion-l.directory.Cversion == int32(came+went)
	single := without(names, hashed)
	var audit []string
	if explained && came+went == 0 {
		audit = l.nextAudit(single)
	}
	var suspects []string
	for _, name := range single {
		if _, known := l.members[name]; !known || !explained || name == l.name || slices.Contains(audit, name) {
			suspects = append(suspects, name)
		}
	}
	if err := l.refreshRecords(ctx, suspects); err != nil {
		return nil, err
	}
	members, next := hashed, make(map[string]record, len(single))
	for _, name := range single {
		if r, ok := l.members[name]; ok {
			next[name] = r
			members = append(members, r.Member)
		}
	}
	l.members = next
	if len(single) > 0 {
		slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	}
	return members, nil
}

// without returns those of names that none of the members has. Both are sorted.
func without(names []string, members []Member) (rest []string) {
	for _, name := range names {
		if len(members) > 0 && members[0].Name == name {
			members = members[1:]
		} else {
			rest = append(rest, name)
		}
	}
	return rest
}

// differ counts the names that are only in b and those that are only in a. Both are sorted.
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

// nextAudit returns the names of the members to check next.
func (l *loop) nextAudit(names []string) []string {
	start, _ := slices.BinarySearch(names, l.audited)
	audit := names[start:min(len(names), start+auditSize)]
	l.audited = ""
	if start+auditSize < len(names) {
		l.audited = names[start+auditSize]
	}
	return audit
}

// refreshRecords brings the records of the names up to date in l.members, and deletes from it the members that are gone. With an
// error it does that for those that it has read: they need not be read again unless the directory's cversion says so. It returns
// when all its reads have ended.
func (l *loop) refreshRecords(ctx context.Context, names []string) error {
	readings, err := readEach(ctx, names, l.readChanged)
	for i, name := range names {
		switch {
		case readings[i].exists:
			l.members[name] = readings[i].record
		case err == nil:
			delete(l.members, name)
		}
	}
	return err
}

// reading is the result of reading one member.
type reading struct {
	record
	exists bool
}

// readEach calls one for each name, on several goroutines, until one of the calls fails. It returns when all have returned, also
// those readings that have succeeded before another one failed.
func readEach(ctx context.Context, names []string, one func(ctx context.Context, name string) (reading, error)) ([]reading, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	readings := make([]reading, len(names))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(readers, len(names)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(names)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				r, err := one(ctx, names[i])
				if err != nil {
					cancel(err)
				} else {
					readings[i] = r
				}
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return readings, context.Cause(ctx)
	}
	return readings, nil
}

// readChanged returns a member as l.members has it, if its znode has not changed, else as it reads it. It runs on several
// goroutines, so it changes nothing of l.
func (l *loop) readChanged(ctx context.Context, name string) (reading, error) {
	if known, ok := l.members[name]; ok && known.Czxid != 0 {
		exists, stat, err := l.inc.Exists(ctx, session.Join(l.path, name))
		if err != nil || !exists {
			return reading{}, err
		}
		readable := known.Err == nil || errors.Is(known.Err, ErrRecordTooLarge)
		if stat.Mzxid == known.Mzxid && readable {
			return reading{known, true}, nil
		}
	}
	return readOne(ctx, l.inc, l.path, name)
}

// readOne reads a member of the directory.
func readOne(ctx context.Context, inc *session.Incarnation, directory, name string) (reading, error) {
	path := session.Join(directory, name)
	r := record{Member: Member{Name: name}}
	data, stat, err := inc.Get(ctx, path)
	switch {
	case err == nil && len(data) > MaxRecord:
		r.Err = operr.New("party", "read", path, ErrRecordTooLarge)
	case err == nil:
		r.Data = data
	case errors.Is(err, session.ErrNoNode):
		return reading{}, nil
	case !unreadable(ctx, err):
		return reading{}, err
	default:
		// The znode is a member all the same. Its metadata can be read without the right to read its data.
		r.Err = operr.New("party", "read", path, err)
		var exists bool
		if exists, stat, err = inc.Exists(ctx, path); err != nil && !unreadable(ctx, err) {
			return reading{}, err
		} else if err == nil && !exists {
			return reading{}, nil
		}
	}
	r.Czxid, r.Mzxid, r.Ctime, r.Session, r.version = stat.Czxid, stat.Mzxid, stat.Ctime, stat.EphemeralOwner, stat.Version
	return reading{r, true}, nil
}

// Read reads the members of the directory path once, as they are now or later, and returns them sorted by name byte by byte. It
// joins nothing, creates nothing and watches nothing. It blocks while it sends a Sync, lists the names and reads the members, 16
// at a time. A member that can't be read has the reason in Err. Errors wrap the session's, ErrNoNode if there is no directory, or
// the cause of ctx's end.
func Read(ctx context.Context, inc *session.Incarnation, path string) ([]Member, error) {
	members, err := readAll(ctx, inc, path)
	if err != nil {
		return nil, operr.New("party", "read", path, err)
	}
	return members, nil
}

func readAll(ctx context.Context, inc *session.Incarnation, path string) ([]Member, error) {
	if err := inc.Sync(ctx, path); err != nil {
		return nil, err
	}
	names, _, err := inc.Children(ctx, path)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	readings, err := readEach(ctx, names, func(ctx context.Context, name string) (reading, error) { return readOne(ctx, inc, path, name) })
	if err != nil {
		return nil, err
	}
	var members []Member
	for _, r := range readings {
		if r.exists {
			members = append(members, r.Member)
		}
	}
	return members, nil
}

// unreadable reports whether err is about the znode and not about the connection or ctx.
func unreadable(ctx context.Context, err error) bool {
	return ctx.Err() == nil && session.Classify(err) == session.ClassFatal && !errors.Is(err, session.ErrClosed)
}
