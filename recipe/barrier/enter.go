package barrier

import (
	"context"
	"errors"
	"fmt"

	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/session"
)

// entering is the state of one Enter.
type entering struct {
	d        *DoubleBarrier
	ctx      context.Context  //nolint:containedctx // Enter's: this ends with the call
	name     string           // name of our znode
	node     *node            // our znode, nil while none exists
	existed  bool             // whether our znode exists or existed, or may have, and no view since excludes that the others entered
	seen     *view            // the latest view that was not pending: the next one is compared with it
	full     *view            // the latest view if it was pending, or nil
	left     seqnode.Blocker  // somebody else's znode of our name, as last read
	patience seqnode.Patience // for how long left was waited for
	here     int              // how many members the latest view has, with this one
	ready    *signal          // the watch on ready; nil while there is none
	new      bool             // whether no view was read since our znode was created
	peer     []string         // the members of the first view after that: all older members, and maybe others
}

// errAgain says that the directory is to be read again.
var errAgain = errors.New("read the directory again")

// run reads the directory again and again until the number is complete.
func (e *entering) run() (*Member, error) {
	defer func() { e.ready.stop() }()
	for {
		m, err := e.once()
		switch {
		case err == nil:
			return m, nil
		case errors.Is(err, session.ErrUncertain), errors.Is(err, ErrLost):
			return nil, err
		case e.ctx.Err() != nil:
			if e.seen != nil {
				return nil, e.blocked()
			}
			return nil, err
		case errors.Is(err, errAgain), errors.Is(err, session.ErrSessionExpired):
		default:
			return nil, err
		}
	}
}

// blocked returns the error for the end of ctx, with the znode in the way, or how many members there were.
func (e *entering) blocked() error {
	b := blocked(e.d.path, e.left.Path, e.left.Data, e.ended())
	b.Detail = fmt.Sprintf("%d of %d members", e.here, e.d.clients)
	return b
}

// behind waits until it is time to read again whether somebody else's znode of our name is gone.
func (e *entering) behind(left seqnode.Blocker, watch *session.Watch) error {
	e.left = left
	e.d.warnWaiting(e.ctx, &e.patience, left)
	return e.pause(watch)
}

// ended returns the cause of ctx's end. The error wraps session.ErrUncertain if our znode may exist: then the number may have
// become complete since the latest view.
func (e *entering) ended() error {
	cause := context.Cause(e.ctx)
	if e.existed {
		return operr.Because(session.ErrUncertain, cause)
	}
	return cause
}

// once reads the directory once and takes the next step. It returns errAgain if there is another one.
func (e *entering) once() (*Member, error) {
	inc, err := e.d.session.Incarnation(e.ctx)
	if err != nil {
		return nil, err
	}
	known := e.ready.created()
	now, watch, err := look(e.ctx, inc, e.d.path)
	if err != nil {
		return nil, err
	}
	if watch != nil {
		defer watch.Stop()
	}
	e.here = len(now.members)
	if e.node != nil && (e.node.inc.SessionID() != inc.SessionID() || !now.has(e.name)) {
		e.node.own.Vanished() // with its session, or deleted by somebody else
		e.node = nil
	}
	if stale(now) {
		if e.existed && e.node == nil {
			return nil, fmt.Errorf("%w: own znode disappeared after ready was created", session.ErrUncertain)
		}
		e.seen, e.full = now, nil
		return nil, e.removeStale(inc)
	}
	if e.node == nil {
		return nil, e.prepare(inc, now, watch)
	}
	v, err := e.outcome(inc, now, known)
	if err != nil {
		return nil, err
	}
	if v == pending {
		e.full = now
	} else {
		e.seen, e.full = now, nil
	}
	if e.new {
		e.new, e.peer = false, now.members
	}
	switch v {
	case complete:
		return e.member(inc, now)
	case undecided:
		return nil, fmt.Errorf("%w: members came and went unseen", session.ErrUncertain)
	case waiting, pending:
	}
	last, err := e.completes(inc, now)
	if err == nil && last {
		err = e.makeReady(inc, now)
	}
	switch {
	case err != nil:
		return nil, err
	case last:
		return e.member(inc, now)
	}
	if err := e.watchAgain(inc, now); err != nil {
		return nil, err
	}
	return nil, e.pause(watch)
}

// infer finds out whether ready existed since the views before.
func (e *entering) infer(inc *session.Incarnation, now *view) (readiness, error) {
	czxids := func(names []string) ([]int64, error) {
		czxids := make([]int64, len(names))
		for i, name := range names {
			exists, stat, err := inc.Exists(e.ctx, session.Join(e.d.path, name))
			if err != nil {
				return nil, err
			}
			if !exists {
				return nil, errAgain // deleted since that view: the next view shows it
			}
			czxids[i] = stat.Czxid
		}
		return czxids, nil
	}
	if e.full != nil {
		if v, err := inferReady(e.full, now, e.d.clients, e.name, czxids); v == complete || err != nil {
			return v, err
		}
	}
	return inferReady(e.seen, now, e.d.clients, e.name, czxids)
}

// prepare creates our znode, once no other znode has its name. It returns errAgain when that is done.
func (e *entering) prepare(inc *session.Incarnation, now *view, watch *session.Watch) error {
	if e.existed && !now.ready {
		// Our znode existed, and is gone. Did the others enter while it existed?
		v, err := e.infer(inc, now)
		if err != nil {
			return err
		}
		if v != waiting {
			return fmt.Errorf("%w: own znode disappeared, and members came and went unseen", session.ErrUncertain)
		}
	}
	e.seen, e.full, e.left = now, nil, seqnode.Blocker{}
	e.existed = e.existed && (now.ready || now.has(e.name))
	n := e.d.newNode(inc, e.name)
	if now.has(e.name) {
		// The znode is an earlier session's, or somebody created it for us.
		mine, err := n.look(e.ctx)
		switch {
		case errors.Is(err, errForeign):
			data, stat, err := seqnode.Read(e.ctx, inc, n.path)
			if errors.Is(err, session.ErrNoNode) {
				return errAgain
			}
			if err != nil {
				return err
			}
			return e.behind(seqnode.Blocker{Path: n.path, Data: data, Stat: stat}, watch)
		case err != nil:
			return err
		case !mine:
			return errAgain
		}
		e.node, e.new, e.existed = n, true, true
		e.d.made(n)
		return errAgain
	}
	if err := e.watchReady(inc, now, now); err != nil {
		return err
	}
	e.d.made(n)
	existed := e.existed
	e.existed = true
	err := n.create(e.ctx)
	if errors.Is(err, errForeign) {
		e.existed = existed // our znode was not created
		return errAgain
	}
	if err != nil {
		return err
	}
	now.own++
	e.node, e.new = n, true
	return errAgain
}

// stale reports whether ready was left behind: no member is there, nor this one. Once a Python process has come, it is too late
// to delete ready: that would use up the process's only watch.
func stale(now *view) bool { return now.ready && len(now.members) == 0 }

// removeStale deletes a ready that was left behind. It returns errAgain when that is done.
func (e *entering) removeStale(inc *session.Incarnation) error {
	err := removeReady(e.ctx, inc, e.d.path)
	switch {
	case e.ctx.Err() != nil:
		return context.Cause(e.ctx)
	case err != nil:
		return err
	}
	return errAgain
}

// member returns the new member, now that the others have entered with us.
func (e *entering) member(inc *session.Incarnation, now *view) (*Member, error) {
	for {
		m, err := newMember(e.ctx, e.d, e.name, e.node, inc, now.zxid)
		if m != nil || err != nil {
			return m, err
		}
		// Trust has ended just now. The member needs trust in the same session again, and nothing else.
		if inc, err = e.d.session.Incarnation(e.ctx); err != nil {
			return nil, operr.Because(ErrLost, err)
		}
		if inc.SessionID() != e.node.inc.SessionID() {
			return nil, operr.Because(ErrLost, session.ErrSessionExpired)
		}
	}
}

// completes reports whether our znode makes the number complete: all other members of the number existed before it. That member
// creates ready. The others wait for ready even if they see the number: if they went on and left, a Python process that completes
// the number might read the directory too late, and wait for ever.
func (e *entering) completes(inc *session.Incarnation, now *view) (bool, error) {
	var peers []string
	for _, name := range e.peer {
		if name != e.name && now.has(name) {
			peers = append(peers, name)
		}
	}
	if len(peers) < e.d.clients-1 {
		return false, nil
	}
	exists, self, err := inc.Exists(e.ctx, e.node.path)
	if err != nil {
		return false, err
	}
	if !exists {
		return false, errAgain
	}
	older := 0
	for _, name := range peers {
		exists, stat, err := inc.Exists(e.ctx, session.Join(e.d.path, name))
		if err != nil {
			return false, err
		}
		if exists && stat.Czxid < self.Czxid {
			older++
		}
	}
	return older == e.d.clients-1, nil
}

// makeReady creates ready, for which the others wait. After a lost reply it repeats the request only if no child was deleted
// since: that child may have been ready, which nobody may create again.
func (e *entering) makeReady(inc *session.Incarnation, now *view) error {
	for {
		_, err := inc.Multi(e.ctx,
			session.CheckOp(e.node.path, -1),
			session.CreateOp(session.Join(e.d.path, readyName), nil, session.Persistent))
		switch {
		case err == nil || errors.Is(err, session.ErrNodeExists):
			return nil
		case errors.Is(err, session.ErrNoNode):
			return errAgain
		case !errors.Is(err, session.ErrUncertain) || e.ctx.Err() != nil:
			return err
		}
		if err := inc.Sync(e.ctx, e.d.path); err != nil {
			return err
		}
		then, watch, err := look(e.ctx, inc, e.d.path)
		if err != nil {
			return err
		}
		if watch != nil {
			watch.Stop()
		}
		if then.ready || then.dir != now.dir || then.deletes != now.deletes {
			return nil
		}
	}
}

// pause waits until it is time to read the directory again.
func (e *entering) pause(watch *session.Watch) error {
	if watch == nil {
		return errAgain
	}
	select {
	case <-watch.C():
		return errAgain
	case <-e.ctx.Done():
		return context.Cause(e.ctx)
	}
}

// removeReady deletes ready, if it exists. After a lost reply it repeats the delete only if the same znode still exists.
func removeReady(ctx context.Context, inc *session.Incarnation, dir string) error {
	path := session.Join(dir, readyName)
	exists, first, err := inc.Exists(ctx, path)
	for err == nil && exists {
		err = inc.Delete(ctx, path, -1)
		if errors.Is(err, session.ErrNoNode) {
			return nil
		}
		if err == nil || !errors.Is(err, session.ErrUncertain) || ctx.Err() != nil {
			return err
		}
		if err = inc.Sync(ctx, dir); err != nil && !errors.Is(err, session.ErrNoNode) {
			return err
		}
		var now session.Stat
		exists, now, err = inc.Exists(ctx, path)
		exists = exists && now.Czxid == first.Czxid
	}
	return err
}
