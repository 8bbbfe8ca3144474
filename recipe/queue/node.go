package queue

import (
	"context"
	"errors"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/session"
)

// node is the znode of one take. It has the entry's name, and so have the znodes of other takes of the entry, before and after
// this one.
type node struct {
	queue *LockingQueue
	inc   *session.Incarnation // an incarnation of the session that owns the znode
	name  string               // name of the entry
	entry string               // path of the entry
	path  string               // path of the znode
	id    string               // data of the znode, new for each take
	czxid int64                // the znode's czxid, 0 until it is known
	own   *hold.Own
}

// newNode returns the znode of a new take. It is not created yet.
func (q *LockingQueue) newNode(inc *session.Incarnation, name string) *node {
	n := &node{
		queue: q,
		inc:   inc,
		name:  name,
		entry: session.Join(q.dir.entries, name),
		path:  session.Join(q.taken, name),
		id:    seqnode.NewGUID(),
	}
	n.own = hold.NewOwn(n.path, q.log, nil, n.remove)
	return n
}

var (
	// errTaken says that another take has the entry.
	errTaken = errors.New("entry is taken")

	// errGone says that the entry does not exist any more.
	errGone = errors.New("entry is gone")
)

// create creates the znode if the entry has not changed since it was read and no other take has it. The request does not end with
// ctx: see [hold.Own.Make].
func (n *node) create(ctx context.Context, entry session.Stat) error {
	return n.own.Make(ctx, func(life context.Context) error { return n.make(life, ctx, entry) })
}

// make sends requests under life and repeats them only while ctx lasts. After an error no znode exists, unless the error wraps
// hold.ErrUnsure.
func (n *node) make(life, ctx context.Context, entry session.Stat) error {
	for {
		_, err := n.inc.Multi(life, session.CheckOp(n.entry, entry.Version), session.CreateOp(n.path, []byte(n.id), session.Ephemeral))
		refused, isRefused := errors.AsType[*session.MultiError](err)
		switch {
		case errors.Is(err, session.ErrNodeExists):
			return errTaken
		case isRefused && refused.Index == 0 && errors.Is(err, session.ErrBadVersion):
			return errAgain // the entry was written: read it again before those behind it
		case isRefused && refused.Index == 0 && errors.Is(err, session.ErrNoNode):
			return errGone
		case errors.Is(err, session.ErrNoNode):
			if err := n.inc.EnsurePath(life, n.queue.taken); err != nil && !errors.Is(err, session.ErrUncertain) {
				return err
			}
		case errors.Is(err, session.ErrUncertain):
			exists, err := n.exists(life)
			if err != nil && !hold.Over(err) {
				err = operr.Because(hold.ErrUnsure, err)
			}
			if exists || err != nil {
				return err
			}
		default:
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// exists reports whether the znode of this take exists. Earlier requests have returned and the Sync comes after them, so a znode
// that is missing now does not appear later.
func (n *node) exists(ctx context.Context) (bool, error) {
	if err := n.inc.Sync(ctx, n.queue.dir.path); err != nil && !errors.Is(err, session.ErrNoNode) {
		return false, err
	}
	data, stat, err := n.inc.Get(ctx, n.path)
	if errors.Is(err, session.ErrNoNode) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return n.made(data) && stat.EphemeralOwner == n.inc.SessionID() && (n.czxid == 0 || stat.Czxid == n.czxid), nil
}

// made reports whether data is the data of this take. A znode of another handle in the same session may exist at the path, too.
func (n *node) made(data []byte) bool { return string(data) == n.id }

// remove tries once to delete the znode: see [hold.NewOwn]. Before each delete it checks that the znode is this take's, because
// another take's may exist at the path by now.
func (n *node) remove(life context.Context) error {
	for {
		exists, err := n.exists(life)
		if err != nil || !exists {
			return err
		}
		if err = n.inc.Delete(life, n.path, -1); !errors.Is(err, session.ErrUncertain) {
			return err
		}
	}
}

// removeAll deletes the znode, and returns when it is gone or its session is over.
func (n *node) removeAll(life context.Context) {
	n.own.Abandon(life)
	_ = n.own.Wait(life)
}

// consume deletes the entry and the znode. It returns nil when both are deleted. First it checks that the znode is this take's: a
// delete has no such condition, and another take's znode may exist at the path before our watch fires.
func (n *node) consume(life context.Context, entry session.Stat) error {
	switch exists, err := n.exists(life); {
	case hold.Over(err):
		return operr.Because(ErrLost, err)
	case err != nil:
		n.removeAll(life)
		return err
	case !exists:
		return ErrLost
	}
	for {
		// One transaction: between two deletes another could take the entry.
		_, err := n.inc.Multi(life, session.DeleteOp(n.entry, -1), session.DeleteOp(n.path, -1))
		switch {
		case err == nil:
			return nil
		case errors.Is(err, session.ErrUncertain):
			exists, lookErr := n.exists(life)
			if lookErr == nil && exists {
				continue // the transaction was not carried out
			}
			if lookErr == nil {
				var there bool
				var now session.Stat
				there, now, lookErr = n.inc.Exists(life, n.entry)
				if lookErr == nil && (!there || now.Czxid != entry.Czxid) {
					return nil // while our znode existed, no other take could consume the entry
				}
				if lookErr == nil {
					return ErrLost
				}
			}
			// If the session is over, another take may have consumed the entry since.
			if !hold.Over(lookErr) {
				n.removeAll(life)
			}
			return err
		case errors.Is(err, session.ErrNoNode):
			n.removeAll(life) // the znode may exist if only the entry is gone
			return operr.Because(ErrLost, err)
		case hold.Over(err):
			return operr.Because(ErrLost, err)
		default:
			n.removeAll(life)
			return err
		}
	}
}
