package barrier

import (
	"context"
	"errors"
	"fmt"

	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/session"
)

// entering is one Enter.
type entering struct {
	d        *DoubleBarrier
	ctx      context.Context  //nolint:containedctx // an Enter is a call: it ends with it
	name     string           // of our znode
	node     *node            // ours, nil while none stands
	stood    bool             // ours has stood, or may have, and it was not seen since that the number was not complete meanwhile
	seen     *view            // the look that the next is compared with: the latest that was not pending
	full     *view            // the latest look, if it was pending
	left     seqnode.Blocker  // what is in our way, as last seen: somebody's znode of our name
	patience seqnode.Patience // with that
	here     int              // how many members the latest look has shown, ours included
	new      bool             // there was no look yet since node is ours
	peer     []string         // the members at the first look after that: all who are older, and maybe others
}

// errAgain says that the directory is to be looked at again.
var errAgain = errors.New("barrier: look again")

// run looks, again and again, until the number is complete.
func (e *entering) run() (*Member, error) {
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

// blocked says what was missing when ctx ended, or in the way.
func (e *entering) blocked() error {
	b := blocked(e.d.path, e.left.Path, e.left.Data, e.ended())
	b.Members, b.Clients = e.here, e.d.clients
	return b
}

// behind waits until it is time to look again whether what is in our way is gone.
func (e *entering) behind(left seqnode.Blocker, watch *session.Watch) error {
	e.left = left
	e.d.complain(e.ctx, &e.patience, left)
	return e.pause(watch)
}

// ended says why ctx has ended. The last look shows who stood then: with ours the number can have become complete since.
func (e *entering) ended() error {
	cause := context.Cause(e.ctx)
	if e.stood {
		return fmt.Errorf("%w: %w", session.ErrUncertain, cause)
	}
	return cause
}

// once takes one look and does what it tells.
func (e *entering) once() (*Member, error) {
	inc, err := e.d.session.Incarnation(e.ctx)
	if err != nil {
		return nil, err
	}
	now, watch, err := look(e.ctx, inc, e.d.path)
	if err != nil {
		return nil, err
	}
	if watch != nil {
		defer watch.Stop()
	}
	e.here = len(now.members)
	if e.node != nil && (e.node.inc.SessionID() != inc.SessionID() || !now.has(e.name)) {
		e.node.own.Vanished() // with its session, or removed by somebody
		e.node = nil
	}
	if stale(now) {
		if e.stood && e.node == nil {
			return nil, fmt.Errorf("%w: our znode went, and ready was made", session.ErrUncertain)
		}
		e.seen, e.full = now, nil
		return nil, e.removeStale(inc)
	}
	if e.node == nil {
		return nil, e.prepare(inc, now, watch)
	}
	v, err := e.judge(inc, now)
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
	return nil, e.pause(watch)
}

// judge tells what has happened since the looks before.
func (e *entering) judge(inc *session.Incarnation, now *view) (verdict, error) {
	czxids := func(names []string) ([]int64, error) {
		czxids := make([]int64, len(names))
		for i, name := range names {
			exists, stat, err := inc.Exists(e.ctx, session.Join(e.d.path, name))
			if err != nil {
				return nil, err
			}
			if !exists {
				return nil, errAgain // it went since that look: the next one knows
			}
			czxids[i] = stat.Czxid
		}
		return czxids, nil
	}
	if e.full != nil {
		if v, err := judge(e.full, now, e.d.clients, e.name, czxids); v == complete || err != nil {
			return v, err
		}
	}
	return judge(e.seen, now, e.d.clients, e.name, czxids)
}

// prepare makes our znode, once nothing is in its way. It returns errAgain.
func (e *entering) prepare(inc *session.Incarnation, now *view, watch *session.Watch) error {
	if e.stood && !now.ready {
		// Ours stood, and went. Did the others enter with it?
		v, err := e.judge(inc, now)
		if err != nil {
			return err
		}
		if v != waiting {
			return fmt.Errorf("%w: our znode went, and members came and went unseen", session.ErrUncertain)
		}
	}
	e.seen, e.full, e.left = now, nil, seqnode.Blocker{}
	e.stood = e.stood && (now.ready || now.has(e.name))
	n := e.d.newNode(inc, e.name)
	if now.has(e.name) {
		// Of an earlier session, or made by somebody for us.
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
		e.node, e.new, e.stood = n, true, true
		e.d.made(n)
		return errAgain
	}
	e.d.made(n)
	stood := e.stood
	e.stood = true
	err := n.create(e.ctx)
	if errors.Is(err, errForeign) {
		e.stood = stood // ours was not made
		return errAgain
	}
	if err != nil {
		return err
	}
	now.own++
	e.node, e.new = n, true
	return errAgain
}

// stale reports whether ready was left behind: nobody stands, us included. Later it may be too
// late to remove it: a Python process that has come has used up its only watch then.
func stale(now *view) bool { return now.ready && len(now.members) == 0 }

// removeStale removes a ready that nobody stands beside. What is looked at before the
// delete is repeated is that it is the same.
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

// member makes the member, now that the others have entered with us.
func (e *entering) member(inc *session.Incarnation, now *view) (*Member, error) {
	for {
		m, err := newMember(e.ctx, e.d, e.name, e.node, inc, now.zxid)
		if m != nil || err != nil {
			return m, err
		}
		// Trust has ended just now. All that is missing is trust in the same session.
		if inc, err = e.d.session.Incarnation(e.ctx); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrLost, err)
		}
		if inc.SessionID() != e.node.inc.SessionID() {
			return nil, fmt.Errorf("%w: %w", ErrLost, session.ErrSessionExpired)
		}
	}
}

// completes reports whether ours is the one that makes the number complete: all the others
// that count stood before it. It is the one to make ready, and the others wait for that, even
// if they see the number: would they go on and leave, a Python process that completes it
// might look too late and wait for ever.
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

// makeReady tells those who wait. After a lost reply it is repeated only if nothing was
// deleted since, as that may have been ready: nobody makes it again.
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

// pause waits until it is time to look again.
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

// removeReady deletes ready, if it stands. It is repeated after a lost reply only if the
// same one still stands.
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
