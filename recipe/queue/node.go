package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/session"
)

// node is the znode of one take. Its name is the entry's, so others make znodes of
// the same name, before and after.
type node struct {
	queue *LockingQueue
	inc   *session.Incarnation // of the session that owns it
	entry string               // path of the entry
	path  string
	id    string // new for each take: the data
	czxid int64  // 0 until it is known
	own   *hold.Own
}

// newNode returns the znode of a take that is to be made.
func (q *LockingQueue) newNode(inc *session.Incarnation, name string) *node {
	n := &node{
		queue: q,
		inc:   inc,
		entry: session.Join(q.dir.entries, name),
		path:  session.Join(q.taken, name),
		id:    seqnode.NewGUID(),
	}
	n.own = hold.NewOwn(n.path, q.log, nil, n.remove)
	return n
}

// errTaken says that there is nothing to take: another has taken the entry, or it is gone.
var errTaken = errors.New("queue: taken by another, or gone")

// create makes the znode, if the entry is there as it was seen and nobody else has taken it.
// The request does not end with ctx: see [hold.Own.Make].
func (n *node) create(ctx context.Context, entry session.Stat) error {
	return n.own.Make(ctx, func(life context.Context) error { return n.make(life, ctx, entry) })
}

// make asks with life and tries again only while ctx lasts. After an error no znode stands, unless it wraps hold.ErrUnsure.
func (n *node) make(life, ctx context.Context, entry session.Stat) error {
	for {
		_, err := n.inc.Multi(life, session.CheckOp(n.entry, entry.Version), session.CreateOp(n.path, []byte(n.id), session.Ephemeral))
		refused, isRefused := errors.AsType[*session.MultiError](err)
		switch {
		case errors.Is(err, session.ErrNodeExists):
			return errTaken
		case isRefused && refused.Index == 0 && errors.Is(err, session.ErrBadVersion):
			return errAgain // somebody wrote it: it is read anew, before those behind it are looked at
		case isRefused && refused.Index == 0 && errors.Is(err, session.ErrNoNode):
			return errTaken
		case errors.Is(err, session.ErrNoNode):
			if err := n.inc.EnsurePath(life, n.queue.taken); err != nil && !errors.Is(err, session.ErrUncertain) {
				return err
			}
		case errors.Is(err, session.ErrUncertain):
			stands, err := n.stands(life)
			if err != nil && !hold.Over(err) {
				err = fmt.Errorf("%w: %w", hold.ErrUnsure, err)
			}
			if stands || err != nil {
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

// stands reports whether the znode of this take stands. The requests before have
// returned, and the Sync is behind them: what is not seen now does not appear later.
func (n *node) stands(ctx context.Context) (bool, error) {
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

// made reports whether data is that of this take. Another handle's may stand there, too, of the same session.
func (n *node) made(data []byte) bool { return string(data) == n.id }

// remove is one try to delete the znode: see [hold.NewOwn]. It looks first, as another's may stand there by now.
func (n *node) remove(life context.Context) error {
	for {
		stands, err := n.stands(life)
		if err != nil || !stands {
			return err
		}
		if err = n.inc.Delete(life, n.path, -1); !errors.Is(err, session.ErrUncertain) {
			return err
		}
	}
}

// removeAll deletes the znode until it is gone or its session is over.
func (n *node) removeAll(life context.Context) {
	n.own.Abandon(life)
	_ = n.own.Wait(life)
}

// consume deletes the entry and the znode, until that is done or can't be. It looks first: no
// delete can ask for the take that made a znode, and another's may stand there before our watch says so.
func (n *node) consume(life context.Context, entry session.Stat) error {
	switch stands, err := n.stands(life); {
	case hold.Over(err):
		return fmt.Errorf("%w: %w", ErrLost, err)
	case err != nil:
		n.removeAll(life)
		return err
	case !stands:
		return fmt.Errorf("%w: %s", ErrLost, n.path)
	}
	for {
		// Together: nobody may take an entry that was worked on.
		_, err := n.inc.Multi(life, session.DeleteOp(n.entry, -1), session.DeleteOp(n.path, -1))
		switch {
		case err == nil:
			return nil
		case errors.Is(err, session.ErrUncertain):
			stands, lookErr := n.stands(life)
			if lookErr == nil && stands {
				continue // it was not done
			}
			if lookErr == nil {
				var exists bool
				var now session.Stat
				exists, now, lookErr = n.inc.Exists(life, n.entry)
				if lookErr == nil && (!exists || now.Czxid != entry.Czxid) {
					return nil // as long as ours stood, nobody else could consume it
				}
				if lookErr == nil {
					return fmt.Errorf("%w: %s", ErrLost, n.path)
				}
			}
			// If the session is over, another may have taken and consumed it since.
			if !hold.Over(lookErr) {
				n.removeAll(life)
			}
			return err
		case errors.Is(err, session.ErrNoNode):
			n.removeAll(life) // if only the entry is gone
			return fmt.Errorf("%w: %w", ErrLost, err)
		case hold.Over(err):
			return fmt.Errorf("%w: %w", ErrLost, err)
		default:
			n.removeAll(life)
			return err
		}
	}
}
