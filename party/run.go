package party

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/session"
)

const (
	// retryPause is the time between two attempts after an error.
	retryPause = 100 * time.Millisecond
	// pacePerMember times the number of members is the least time between two readings of the directory, up to maxPace: while
	// many members join at once, each of them reads all the others, and must not do so once for each join.
	pacePerMember = time.Millisecond
	maxPace       = time.Second

	// Servers that are slow because many members read them are read less often: latePace times what the last reading took is the
	// least time to the next one, up to latePaces times what it would be else.
	latePace  = 2
	latePaces = 4
	// refusedPause is the longest time between two attempts that the servers refuse. It is about how long a member stays away
	// after an ACL was put right.
	refusedPause = 5 * time.Second
)

// The kinds of the errors that the servers answer: about the members, and about the directory of records.
const (
	kindRefused = "membership"
	kindRecords = "hashes"
)

// Run joins, watches, and publishes views until ctx ends; then it leaves, for which it takes at most one session timeout, and
// returns nil. Run keeps the session open meanwhile.
//
// ErrNameTaken, ErrNotAdmitted and the end of the session end Run with an error. Before this Party has joined, or an observer has
// read the members, any fatal error of package session does so, too. After that, or with Options.Rejoin, Run reports what the
// servers refuse in View.Err, the log and the metric, and tries again, after pauses that grow to 5 s. A second call returns
// [kiel.ErrRunTwice].
func (p *Party) Run(ctx context.Context) error {
	if p.started.Swap(true) {
		return operr.New("party", "", p.path, kiel.ErrRunTwice)
	}
	defer close(p.done)
	defer p.sess.KeepOpen()()
	l := &loop{
		Party: p, members: make(map[string]record), lasting: p.rejoin,
		records:  recordsDir{path: p.recordsPath, known: map[recordHash][]byte{hashOf(p.data): p.data}},
		refusals: pause.Backoff{Growth: pause.Doubling(retryPause, refusedPause)},
		tenure:   tenure{process: thisProcess()},
	}
	err := l.run(ctx)
	if leaveErr := l.leaveFinally(ctx); leaveErr != nil {
		p.log.WarnContext(ctx, "leaving failed, the znode ends with the session", "error", leaveErr)
	}
	return err
}

// loop is the state of Run's goroutine.
type loop struct {
	*Party
	inc     *session.Incarnation
	sid     int64 // the ZooKeeper session id of inc
	own     int64 // the czxid of this member's znode in this ZooKeeper session and this history of the servers; 0 if it was not seen
	absent  bool  // whether no znode of this member's name is known: then the loop creates one
	hasLeft bool  // whether this member's znode is gone for good
	blind   bool  // whether the last attempt to read the members was refused: then the loop creates no znode before it has read them

	lasting  bool          // whether refusals do not end Run: this member has joined before, or an observer has read
	refusals pause.Backoff // between attempts that are refused

	takenUntil time.Time // until when the loop waits for another session that holds the name; zero if none does
	takenConn  uint64    // how often the session had reconnected when takenUntil was set
	held       error     // wraps ErrNameHeld; nil if no other session holds the name
	tenure     tenure    // of a static member

	watch     *session.Watch    // the watch of the last listing under inc, which lasts until it fires; nil before
	directory session.Stat      // the directory's metadata at the last reading
	names     []string          // the members' names at the last reading, sorted
	members   map[string]record // the members whose znodes were read, by name; those that are known by their hashes are not in it
	records   recordsDir
	single    bool          // whether the znode of each member has to be read
	audited   string        // the name with which the next audit begins
	readAt    time.Time     // when the last reading ended
	took      time.Duration // how long it took
	admitted  *View         // the newest view with which Options.Admit has admitted this member; nil before

	refreshing []chan struct{} // calls of Refresh that wait for the next view
}

// wanted reports whether the Party is to be a member.
func (l *loop) wanted() bool { return l.name != "" && !l.leaving.Load() }

// run serves one incarnation after the other until ctx ends.
func (l *loop) run(ctx context.Context) error {
	for {
		inc, err := l.incarnation(ctx)
		if err == nil {
			err = l.serve(ctx, inc)
		}
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // asked to end
		case err != nil:
			return l.wrap(err)
		}
	}
}

func (l *loop) wrap(err error) error { return operr.New("party", "", l.path, err) }

// incarnation waits for a trusted incarnation. Before the first one there is no znode to remove, so Leave ends the wait.
func (l *loop) incarnation(ctx context.Context) (*session.Incarnation, error) {
	if l.inc != nil || l.hasLeft {
		return l.sess.Incarnation(ctx)
	}
	wait, cancel := context.WithCancel(ctx)
	var waking sync.WaitGroup
	waking.Go(func() {
		select {
		case <-l.wake:
			cancel()
		case <-wait.Done():
		}
	})
	inc, err := l.sess.Incarnation(wait)
	cancel()
	waking.Wait()
	if err != nil && l.leaving.Load() && ctx.Err() == nil {
		if err := l.leave(ctx); err != nil {
			return nil, err
		}
		return l.sess.Incarnation(ctx)
	}
	return inc, err
}

// serve works under one incarnation. It returns nil when the incarnation or ctx has ended.
func (l *loop) serve(ctx context.Context, inc *session.Incarnation) error {
	if l.inc == nil || inc.History() != l.inc.History() {
		// The servers may have lost data, and may give the same zxids and versions again.
		l.sid, l.own = inc.SessionID(), 0
		l.directory, l.names = session.Stat{}, nil
		clear(l.members)
	}
	l.inc = inc
	l.absent = true // a create that finds the znode does no harm
	l.takenUntil, l.held, l.tenure.holder = time.Time{}, nil, 0
	l.records.mendAt = time.Time{}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(inc.Context(), func() { cancel(context.Cause(inc.Context())) })()
	defer l.unwatch()
	defer l.records.unwatch()

	for ctx.Err() == nil {
		err := l.step(ctx)
		switch {
		case err == nil:
			l.refusals.Reset()
			l.errs.OK(kindRefused, "")
			l.answer()
			l.wait(ctx)
		case ctx.Err() != nil:
		case session.Retryable(err), session.Classify(err) == session.ClassUncertain:
			l.log.DebugContext(ctx, "trying again", "error", err)
			_ = pause.Sleep(ctx, retryPause)
		case l.outlasts(err):
			l.refuse(ctx, err)
		default:
			return err
		}
	}
	return nil
}

// outlasts reports whether Run goes on after err, which the servers have answered: a member that has joined comes back when an
// operator has put an ACL or a quota right.
func (l *loop) outlasts(err error) bool {
	lasts := l.lasting || session.Classify(err) == session.ClassBackoff
	return lasts && !errors.Is(err, ErrNameTaken) && !errors.Is(err, ErrNotAdmitted) && !errors.Is(err, session.ErrClosed)
}

// refuse reports an attempt that the servers have refused, and waits until the next one.
func (l *loop) refuse(ctx context.Context, err error) {
	l.refused.Inc()
	l.errs.FailedWarn(kindRefused, "", err)
	var view View
	if last := l.latest.Load(); last != nil {
		view = *last
	}
	view.Err = l.wrap(err)
	if l.wanted() && (l.blind || view.Incarnation != l.inc) {
		l.carryOver(ctx, &view)
	} else {
		view.Joined = view.Joined && !l.absent
	}
	if ctx.Err() == nil {
		l.publish(view)
	}
	l.answer()
	timer := time.NewTimer(pause.Jitter(l.refusals.Next()))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-l.wake:
	case done := <-l.refresh:
		l.refreshing = append(l.refreshing, done)
	case <-timer.C:
	}
}

// step leaves if it is to, and reads the directory.
func (l *loop) step(ctx context.Context) error {
	if l.leaving.Load() {
		if err := l.leave(ctx); err != nil {
			return err
		}
	}
	if len(l.refreshing) > 0 {
		if err := l.inc.Sync(ctx, l.path); err != nil {
			return err
		}
	}
	l.calm(ctx)
	return l.look(ctx)
}

// wait waits until the directory is to be read again.
func (l *loop) wait(ctx context.Context) {
	limit := l.inc.Timeout()
	calm := time.NewTimer(pause.Early(limit, limit/5)) // members that joined together do not read together
	defer calm.Stop()
	var taken <-chan time.Time
	var guard <-chan struct{}
	if l.tenure.watch != nil {
		guard = l.tenure.watch.C()
	}
	if !l.takenUntil.IsZero() {
		timer := time.NewTimer(time.Until(l.takenUntil))
		defer timer.Stop()
		taken = timer.C
	}
	select {
	case <-ctx.Done():
		return
	case <-l.wake:
		return
	case <-taken:
		return
	case <-guard:
		return
	case <-calm.C:
		return
	case done := <-l.refresh:
		l.refreshing = append(l.refreshing, done)
		return
	case <-l.watch.C():
	case <-l.records.changed():
	}
	timer := time.NewTimer(time.Until(l.readAt.Add(l.pace())))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-l.wake:
	case <-taken:
	case <-guard:
	case done := <-l.refresh:
		l.refreshing = append(l.refreshing, done)
	case <-timer.C:
	}
}

// pace returns the least time between two readings of the directory.
func (l *loop) pace() time.Duration {
	pace := min(maxPace, time.Duration(max(len(l.names), len(l.records.names)))*pacePerMember)
	return min(max(pace, latePace*l.took), latePaces*pace)
}

// look reads the directory and publishes the view. If this member's znode is missing, look creates it first. A refusal to create
// the znode is an error only if the directory, which is read all the same, shows that the znode is missing.
func (l *loop) look(ctx context.Context) error {
	for {
		var refused error
		if l.wanted() && l.absent && !l.blind {
			err := l.join(ctx)
			switch {
			case err == nil:
			case refusal(err) && l.outlasts(err):
				refused = err
			default:
				return err
			}
		}
		// No Sync is needed: a session reads its own writes, and its beginning was a write, so it reads everything that was
		// written before.
		began := time.Now()
		names, directory, err := l.list(ctx)
		l.readingEnded(err)
		if errors.Is(err, session.ErrNoNode) {
			if err := l.inc.EnsurePath(ctx, l.path); err != nil {
				return err
			}
			l.absent = true
			continue
		}
		if err != nil {
			return err
		}
		view, err := l.read(ctx, names, directory)
		took := time.Since(began)
		if err == nil {
			err = l.checkOwn(ctx, &view)
		}
		l.readingEnded(err)
		if err == nil && view.Joined {
			err = l.checkAdmitted(&view)
		}
		if err == nil && view.Joined && l.wanted() && l.records.path != "" {
			err = l.mendEntry(ctx)
		}
		switch {
		case err == nil && (!l.wanted() || !l.absent):
			l.took = took
			l.publish(view)
			l.lasting = l.lasting || view.Joined || l.name == ""
			return nil
		case err == nil && refused != nil:
			view.Err = l.wrap(refused)
			l.publish(view)
			return refused
		case errors.Is(err, ErrNameTaken):
			l.publish(view)
			return err
		case err != nil:
			return err
		}
	}
}

// checkOwn finds out who owns the znode of this member's name, if there is one, and sets view.Joined and view.NameHeld.
func (l *loop) checkOwn(ctx context.Context, view *View) error {
	l.unwatchGuard()
	if l.name == "" {
		return nil
	}
	r, stands := l.members[l.name]
	if stands && r.Czxid == 0 && l.wanted() {
		return operr.New("", "read the owner of", l.node, r.Err)
	}
	own, until, held := l.own, l.takenUntil, l.held
	l.own, l.absent, l.takenUntil, l.held = 0, false, time.Time{}, nil
	switch {
	case !stands:
		if own != 0 && l.wanted() {
			l.log.WarnContext(ctx, "own znode was deleted, joining again")
		}
		l.absent = true
		return nil
	case r.Session == l.sid && l.wanted() && l.altered(r):
		// The other members would act on a record that this member did not write.
		l.log.WarnContext(ctx, "own record was changed, joining again")
		err := l.deleteOwn(ctx, r.version)
		if err == nil || errors.Is(err, session.ErrNoNode) || errors.Is(err, session.ErrBadVersion) {
			l.absent = true
			return nil
		}
		l.own = own // the znode stands, or the next reading shows that it does not
		return err
	case r.Session == l.sid:
		if r.Czxid != own {
			l.log.InfoContext(ctx, "joined", "session_id", hex(l.sid), "czxid", r.Czxid)
		}
		l.own = r.Czxid
		view.Joined = true
		return nil
	case !l.wanted():
		return nil
	case l.isStatic(r):
		return l.heldByStatic(ctx, view, r, held, own != 0)
	case own != 0:
		return fmt.Errorf("%w: znode %s was replaced by one of %s: %s", ErrNameTaken, l.node, owner(r.Session), advice(r.Session))
	case until.IsZero(), l.takenConn != l.sess.Stats().Reconnects:
		// The wait begins anew after a reconnect, which may be due to a new leader: that gives all sessions their whole timeout
		// again.
		patience := l.sess.MaxExpiry()
		l.takenUntil, l.takenConn = time.Now().Add(patience), l.sess.Stats().Reconnects
		l.held = operr.New("party", "", "", fmt.Errorf("%w: %s is owned by %s; waiting until %s for it to go",
			ErrNameHeld, l.node, owner(r.Session), l.takenUntil.UTC().Format(time.RFC3339)))
		l.log.InfoContext(ctx, "name is held by another session, waiting for it to go", "holder", hex(r.Session), "patience", patience)
	case !time.Now().Before(until):
		return fmt.Errorf("%w: %s is held by %s: %s", ErrNameTaken, l.node, owner(r.Session), advice(r.Session))
	default:
		l.takenUntil, l.held = until, held
	}
	view.NameHeld = l.held
	return nil
}

// altered reports whether r, this member's znode, holds another record than the Party's.
func (l *loop) altered(r record) bool {
	return errors.Is(r.Err, ErrRecordTooLarge) || r.Err == nil && !bytes.Equal(r.Data, l.data)
}

// owner names the session that owns a znode, for errors.
func owner(session int64) string {
	if session == 0 {
		return "no session, it is persistent"
	}
	return "session " + hex(session)
}

// advice returns what to do about a name that this session holds.
func advice(session int64) string {
	if session == 0 {
		return "delete the znode by hand"
	}
	return "give one of the two members another name, or stop the other process"
}

func hex(session int64) string { return fmt.Sprintf("0x%x", uint64(session)) }
