package barrier

import (
	"context"
	"errors"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/session"
)

// errForeign says that a znode of this name belongs to another session. That is an earlier session of this process, because
// nobody else knows the name.
var errForeign = errors.New("znode belongs to another session")

// node is a member's znode in one session.
type node struct {
	inc  *session.Incarnation // an incarnation of the session that owns the znode
	path string
	data []byte
	own  *hold.Own
}

// newNode returns this member's znode, which is to be created, or was found. Nobody creates it again while it is being deleted:
// the handle waits for that.
func (d *DoubleBarrier) newNode(inc *session.Incarnation, name string) *node {
	n := &node{inc: inc, path: session.Join(d.path, name), data: d.data}
	n.own = hold.NewOwn(n.path, d.log, nil, func(life context.Context) error {
		err := hold.Delete(life, inc, n.path, n.look)
		if errors.Is(err, errForeign) {
			return nil
		}
		return err
	})
	return n
}

// create creates the znode, or finds it. The requests do not end with ctx: see [hold.Own.Make].
func (n *node) create(ctx context.Context) error {
	return n.own.Make(ctx, func(life context.Context) error { return n.make(life, ctx) })
}

// make sends requests under life and repeats them only while ctx lasts. After an error no znode of this session exists, unless
// the error wraps [hold.ErrUnsure] and [session.ErrUncertain]: then the server refused the read.
func (n *node) make(life, ctx context.Context) error {
	for {
		_, err := n.inc.Create(life, n.path, n.data, session.Ephemeral)
		switch {
		case errors.Is(err, session.ErrUncertain), errors.Is(err, session.ErrNodeExists):
			mine, err := n.look(life)
			switch {
			case err != nil && !errors.Is(err, errForeign) && !hold.Over(err):
				return operr.Because(session.ErrUncertain, operr.Because(hold.ErrUnsure, operr.New("", "read after its create", n.path, err)))
			case mine || err != nil:
				return err
			}
		case errors.Is(err, session.ErrNoNode):
			err := n.inc.EnsurePath(life, parentOf(n.path))
			if err != nil && !errors.Is(err, session.ErrUncertain) { // if uncertain, the next create shows the outcome
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

// look reports whether the znode exists. Earlier requests have returned and the Sync comes after them, so a znode that is missing
// now does not appear later.
func (n *node) look(life context.Context) (bool, error) {
	if err := n.inc.Sync(life, parentOf(n.path)); err != nil && !errors.Is(err, session.ErrNoNode) {
		return false, err
	}
	exists, stat, err := n.inc.Exists(life, n.path)
	if err == nil && exists && stat.EphemeralOwner != n.inc.SessionID() {
		err = errForeign
	}
	return exists && err == nil, err
}
