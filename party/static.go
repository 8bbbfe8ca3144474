package party

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	gopath "path"
	"slices"
	"time"

	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/session"
)

// Static makes a member static: one that comes back under its name while its former process's znode still exists takes the place
// over, and the other members see no change of the names.
type Static struct {
	// Guard is the path of a persistent znode of this name alone. Each process that gets the name writes it, with the version
	// that the process has read, so that of two processes one gets the name. It is created when missing, its parents too, and
	// never deleted.
	Guard string
	// Is reports whether data is the record of a static member. Only the znode of a static member is taken over. Is is called on
	// Run's goroutine: it must return at once.
	Is func(data []byte) bool
}

const (
	// firstWait is how long a process waits before it takes the name from a session that has not stopped, if that session has
	// taken the name so itself. The wait doubles from each such take-over to the next, up to maxWait. The first one waits for
	// nothing.
	firstWait = time.Second
	maxWait   = 24 * time.Hour
	// calmTime is how much longer than twice the next wait a process has to have the name for the waits to begin anew.
	calmTime = 10 * time.Minute
)

// guard is the data of a guard.
type guard struct {
	V       int    `json:"v"`
	Session string `json:"session"`         // that has the name
	Process string `json:"process"`         // of that session, for people
	Taken   int    `json:"taken,omitempty"` // how often in a row the name was taken from a session that had not stopped
	Stopped bool   `json:"stopped,omitempty"`

	exists  bool
	version int32
}

// tenure is what the loop knows of a static member's name.
type tenure struct {
	watch   *session.Watch // of the guard, while the loop waits to take the name over; else nil
	holder  int64          // the czxid of the znode that takeAt is about
	takeAt  time.Time      // when the znode of holder may be taken over
	calmAt  time.Time      // when Taken is set to 0, because this member has had the name for so long; zero if Taken is 0
	raced   bool           // whether another process was first: that one is not taken over at once
	parents bool           // whether the directory of records was made once, because it was missing
	process string         // of this member
}

// waitOf returns how long to wait before a take-over that follows on so many.
func waitOf(taken int) time.Duration {
	if taken <= 0 {
		return 0
	}
	wait := firstWait
	for range taken - 1 {
		if wait *= 2; wait >= maxWait {
			return maxWait
		}
	}
	return wait
}

// thisProcess names the process, for people.
func thisProcess() string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	return fmt.Sprintf("%.100s:%d", host, os.Getpid())
}

// isStatic reports whether r is the znode of a static member. Static members write their znode once more in the transaction that
// creates it, so its version is never 0, as that of all others is: a znode that is deleted with such a version is no other
// member's.
func (l *loop) isStatic(r record) bool {
	return l.static != nil && r.Err == nil && r.version > 0 && r.Session != 0 && l.static.Is(r.Data)
}

// readGuard reads the guard. With watch, the loop wakes when it changes.
func (l *loop) readGuard(ctx context.Context, watch bool) (guard, error) {
	var data []byte
	var stat session.Stat
	var err error
	if watch {
		l.unwatchGuard()
		data, stat, l.tenure.watch, err = l.inc.GetW(ctx, l.static.Guard)
	} else {
		data, stat, err = l.inc.Get(ctx, l.static.Guard)
	}
	if errors.Is(err, session.ErrNoNode) {
		return guard{}, nil
	}
	if err != nil {
		return guard{}, err
	}
	var g guard
	if json.Unmarshal(data, &g) != nil {
		g = guard{} // somebody has written it; its version counts all the same
	}
	g.Taken = max(0, g.Taken) // so does a number that no member writes: the waits grow from there
	g.exists, g.version = true, stat.Version
	return g, nil
}

func (l *loop) unwatchGuard() {
	if l.tenure.watch != nil {
		l.tenure.watch.Stop()
		l.tenure.watch = nil
	}
}

// write returns the operation that writes g, if nobody has written the guard since old was read.
func (l *loop) write(g, old guard) session.Op {
	g.V = 1
	data, _ := json.Marshal(g) //nolint:errchkjson // it has strings and numbers
	if !old.exists {
		return session.CreateOp(l.static.Guard, data, session.Persistent)
	}
	return session.SetOp(l.static.Guard, data, old.version)
}

// mayTake reports whether the znode r of another session may be taken over now.
func (l *loop) mayTake(r record, g guard) bool {
	if !l.isStatic(r) {
		return false
	}
	if g.Stopped && g.Session == hex(r.Session) {
		return true
	}
	if l.tenure.holder != r.Czxid {
		wait := waitOf(g.Taken)
		if l.tenure.raced {
			wait = max(wait, firstWait)
		}
		l.tenure.holder, l.tenure.takeAt, l.tenure.raced = r.Czxid, time.Now().Add(wait), false
	}
	return !time.Now().Before(l.tenure.takeAt)
}

// joinStatic creates this member's znode, in place of that of a former process if there is one that may be taken over, and moves
// its entry in the directory of records in the same transaction. The znode of another member is left as it is. Each attempt that
// the servers refuse because of a version follows on a success of another process.
func (l *loop) joinStatic(ctx context.Context) error {
	for entries := l.records.path != ""; ; {
		r, err := readOne(ctx, l.inc, l.path, l.name)
		if err != nil {
			return err
		}
		if r.exists && (r.Session == l.sid || !l.isStatic(r.record)) {
			return nil
		}
		old, err := l.readGuard(ctx, false)
		if err != nil || r.exists && !l.mayTake(r.record, old) {
			return err
		}
		g := guard{Session: hex(l.sid), Process: l.tenure.process, Taken: old.Taken}
		switch {
		case old.Stopped:
			g.Taken = 0
		case r.exists:
			g.Taken++
		}
		ops := []session.Op{l.write(g, old)}
		if r.exists {
			ops = append(ops, session.DeleteOp(l.node, r.version))
		}
		ops = append(ops, session.CreateOp(l.node, l.data, session.Ephemeral), session.SetOp(l.node, l.data, 0))
		own := len(ops) // operations; the others are about entries
		if entries {
			if ops, err = l.moveEntry(ctx, ops, r); err != nil {
				return err
			}
		}
		l.tenure.calmAt = time.Time{} // before the answer, which may be lost; calm sees whether this member has the name
		if g.Taken > 0 {
			l.tenure.calmAt = time.Now().Add(calmTime + 2*waitOf(g.Taken))
		}
		_, err = l.inc.Multi(ctx, ops...)
		refused, ok := errors.AsType[*session.MultiError](err)
		switch {
		case err == nil:
			l.gotName(ctx, r, old)
			return nil
		case errors.Is(err, session.ErrUncertain):
			// Before the answer to a Sync it was executed, or it never will be: the next reading shows which.
			return l.inc.Sync(ctx, l.path)
		case ok && refused.Index >= own:
			// Without an entry the others read the znode, and mendEntry tries again.
			entries = false
			if errors.Is(err, session.ErrNoNode) && l.inc.EnsurePath(ctx, l.records.path) == nil && !l.tenure.parents {
				entries, l.tenure.parents = true, true
			}
			continue
		}
		if err := l.joinRefused(ctx, err); err != nil {
			return err
		}
	}
}

// moveEntry adds to ops those that delete the entry of a former process, whose znode was read as r, and create this member's.
func (l *loop) moveEntry(ctx context.Context, ops []session.Op, r reading) ([]session.Op, error) {
	if r.exists {
		old := session.Join(l.records.path, entryName(entry{hashOf(r.Data), r.Session}, l.name))
		exists, _, err := l.inc.Exists(ctx, old)
		if err != nil && !unreadable(ctx, err) {
			return nil, err
		}
		if exists {
			ops = append(ops, session.DeleteOp(old, -1))
		}
	}
	return append(ops, session.CreateOp(l.ownEntry(), l.info, session.Ephemeral)), nil
}

// joinRefused makes what a refused transaction lacked, or has the next reading show what has changed. It returns err if neither
// helps.
func (l *loop) joinRefused(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, session.ErrNoNode):
		return errors.Join(l.inc.EnsurePath(ctx, l.path), l.inc.EnsurePath(ctx, gopath.Dir(l.static.Guard)))
	case errors.Is(err, session.ErrBadVersion), errors.Is(err, session.ErrNodeExists):
		l.tenure.raced = true
		return l.inc.Sync(ctx, l.path)
	default:
		return err
	}
}

// gotName notes that this member has got its name.
func (l *loop) gotName(ctx context.Context, r reading, old guard) {
	l.tenure.holder = 0
	switch {
	case !r.exists:
	case old.Stopped:
		l.log.InfoContext(ctx, "membership taken over", "holder", hex(r.Session), "session_id", hex(l.sid))
	default:
		l.log.WarnContext(ctx, "membership taken over from a process that has not stopped", "holder", hex(r.Session), "process", old.Process,
			"session_id", hex(l.sid))
	}
}

// heldByStatic sees what to do about the znode r of another session, which is a static member's: to take it over, or to wait.
func (l *loop) heldByStatic(ctx context.Context, view *View, r record, held error, replaced bool) error {
	g, err := l.readGuard(ctx, true)
	if err != nil {
		return err
	}
	known := l.tenure.holder == r.Czxid
	if l.mayTake(r, g) {
		l.absent = true
		return nil
	}
	if l.held, l.takenUntil = held, l.tenure.takeAt; !known || held == nil {
		text := "is owned by"
		if replaced {
			text = "was taken over by"
		}
		l.held = operr.New("party", "", "", fmt.Errorf("%w: %s %s %s, process %s; this is session %s, process %s, and takes it over at %s "+
			"unless the other one ends before: two processes have this name, stop one of them",
			ErrNameHeld, l.node, text, owner(r.Session), g.Process, hex(l.sid), l.tenure.process, l.takenUntil.UTC().Format(time.RFC3339)))
		l.log.ErrorContext(ctx, "another process has this static name, waiting", "holder", hex(r.Session), "process", g.Process,
			"session_id", hex(l.sid), "patience", time.Until(l.takenUntil))
	}
	view.NameHeld = l.held
	return nil
}

// calm lets the waits begin anew, once this member has had the name for long.
func (l *loop) calm(ctx context.Context) {
	if l.static == nil || l.own == 0 || l.tenure.calmAt.IsZero() || time.Now().Before(l.tenure.calmAt) {
		return
	}
	g, err := l.readGuard(ctx, false)
	if err == nil && g.exists && g.Session == hex(l.sid) {
		next := g
		next.Taken = 0
		_, err = l.inc.Multi(ctx, l.write(next, g))
	}
	if err != nil {
		l.log.DebugContext(ctx, "trying again", "error", err)
		l.tenure.calmAt = time.Now().Add(calmTime)
		return
	}
	l.tenure.calmAt = time.Time{}
}

// deleteOwn deletes this member's znode, which has that version. A process that has taken the name over since the guard was read
// has written that, so that its znode, whose version may be the same, is left alone.
func (l *loop) deleteOwn(ctx context.Context, version int32) error {
	if l.static == nil {
		return l.exit(ctx, version)
	}
	g, guarded := l.readGuard(ctx, false)
	if guarded != nil && !unreadable(ctx, guarded) {
		return guarded
	}
	exists, stat, err := l.inc.Exists(ctx, l.node)
	switch {
	case err != nil:
		return err
	case !exists || stat.EphemeralOwner != l.sid:
		return session.ErrNoNode
	case guarded != nil: // whoever is refused the guard, too, takes no name over
		return l.exit(ctx, version)
	}
	first := session.CheckOp(l.static.Guard, g.version)
	if !g.exists { // somebody has deleted it: it is made anew, and a process that takes the name over does so, too
		first = l.write(guard{Session: hex(l.sid), Process: l.tenure.process}, g)
	}
	ops := []session.Op{first, session.DeleteOp(l.node, version)}
	all := ops
	if l.records.path != "" {
		all = append(slices.Clone(ops), session.DeleteOp(l.ownEntry(), -1))
	}
	_, err = l.inc.Multi(ctx, all...)
	if isAbout(err, len(ops)) {
		_, err = l.inc.Multi(ctx, ops...) // the entry is gone, or ends with the session
	}
	switch {
	case !isAbout(err, 0) || g.exists:
		return err
	case errors.Is(err, session.ErrNodeExists):
		return session.ErrBadVersion
	case errors.Is(err, session.ErrNoNode):
		return cmp.Or(l.inc.EnsurePath(ctx, gopath.Dir(l.static.Guard)), session.ErrBadVersion)
	default:
		return l.exit(ctx, version)
	}
}

// stop marks the guard, so that the next process of this name takes the membership over at once. It reports whether the znode
// stands, and is to stay.
func (l *loop) stop(ctx context.Context) bool {
	if l.static == nil || !l.keep.Load() || l.own == 0 || l.hasLeft {
		return false
	}
	g, err := l.readGuard(ctx, false)
	if err != nil || g.Session != hex(l.sid) {
		return false
	}
	stopped := guard{Session: g.Session, Process: g.Process, Stopped: true}
	_, err = l.inc.Multi(ctx, session.CheckOp(l.node, l.members[l.name].version), l.write(stopped, g))
	if err != nil {
		return false
	}
	l.log.InfoContext(ctx, "stopped, and the membership stays until the session ends", "session_id", hex(l.sid))
	return true
}

// Keep makes the coming end of Run leave this static member's znode in place, for the next process of this name: it stays until
// the ZooKeeper session ends. Call it when nothing is left to do under the membership, and before Run's context ends. Kept tells
// whether it was so. Without Options.Static, Keep has no effect.
func (p *Party) Keep() { p.keep.Store(true) }

// Kept reports whether Run has ended and left this member's znode in place, because of Keep. Then the program ends the connection
// of the ZooKeeper session and does not close that ([session.Session.LetExpire]).
func (p *Party) Kept() bool { return p.kept.Load() }
