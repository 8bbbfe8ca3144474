package seqnode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/session"
)

// sweepPause is between two looks for what a create in a session that is over has made.
const sweepPause = time.Second

// Node is one contender of this process. It is made by [Dir.Create] and ends with
// its ZooKeeper session, unless it is persistent, or when it is removed.
type Node struct {
	dir  *Dir
	inc  *session.Incarnation // of the session that made it; used for as long as that lives
	path string               // without the sequence number until that is known
	self Contender
	own  *hold.Own

	// The goroutine that makes or removes the node alone uses the fields below.
	made  string    // its path, "" if it is not known whether it was made
	sweep time.Time // until when to look for what was perhaps made in a session that is over; zero until it is
}

// Path returns the node's path.
func (n *Node) Path() string { return n.path }

// create makes the node. The requests do not end with ctx: see [hold.Own.Make].
func (n *Node) create(ctx context.Context) error {
	var path string
	err := n.own.Make(ctx, func(life context.Context) (err error) {
		path, err = n.make(life, ctx)
		if path != "" {
			n.made = path
			n.own.Name(path)
		}
		return err
	})
	switch {
	case errors.Is(err, hold.ErrUnsure), err != nil && ctx.Err() != nil:
		n.dir.addLeaving(n)
		return err
	case err != nil:
		return err
	}
	n.path = path
	var ok bool
	if n.self, ok = Parse(name(path), n.dir.opts.Word); !ok {
		n.Abandon(ctx)
		return fmt.Errorf("seqnode: the server named a contender %q", path)
	}
	return nil
}

// make creates the node and returns its path. It asks with life, and tries again
// only while ctx lasts. When it returns an error, no node stands, or the error wraps
// hold.ErrUnsure.
func (n *Node) make(life, ctx context.Context) (string, error) {
	mode := session.EphemeralSequential
	if n.dir.opts.Persistent {
		mode = session.PersistentSequential
	}
	for {
		path, err := n.inc.Create(life, n.path, n.dir.opts.Data, mode)
		if errors.Is(err, session.ErrUncertain) {
			if path, err = n.find(life); n.leavesUnsure(err) {
				err = fmt.Errorf("%w: %w", hold.ErrUnsure, err)
			}
		}
		if errors.Is(err, session.ErrNoNode) {
			err = n.inc.EnsurePath(life, n.dir.path)
			if errors.Is(err, session.ErrUncertain) {
				err = nil // the next create shows it
			}
		}
		if err != nil || path != "" {
			return path, err
		}
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
	}
}

// find looks for the node after the reply to its create was lost, and returns its
// path, or "" when it was not made. The request has returned, and the Sync is
// behind it: what is not seen now will not appear later. Should there be several,
// the first is ours and the others are removed.
func (n *Node) find(life context.Context) (string, error) {
	if err := n.inc.Sync(life, n.dir.path); err != nil {
		return "", err
	}
	children, _, err := n.inc.Children(life, n.dir.path)
	if err != nil {
		return "", err
	}
	prefix := name(n.path)
	found := ""
	for _, c := range Contenders(children, n.dir.opts.Word) {
		if !strings.HasPrefix(c.Name, prefix) {
			continue
		}
		path := session.Join(n.dir.path, c.Name)
		exists, stat, err := n.inc.Exists(life, path)
		switch {
		case err != nil:
			return "", err
		case !exists || stat.EphemeralOwner != n.owner():
		case found == "":
			found = path
		default:
			double := hold.NewOwn(path, n.dir.opts.Logger, n.dir.lasting(), func(life context.Context) error { return n.delete(life, path) })
			double.Abandon(life)
			_ = double.Wait(life) // the log tells if Run ends before
		}
	}
	return found, nil
}

// leavesUnsure reports whether find with that error leaves open whether the node stands: the
// server did not let us see, or the session is over and the node none that goes with it.
func (n *Node) leavesUnsure(err error) bool {
	switch {
	case err == nil, errors.Is(err, session.ErrNoNode): // no directory
		return false
	case hold.Over(err):
		return n.dir.opts.Persistent
	default:
		return true
	}
}

// owner is the EphemeralOwner of the node.
func (n *Node) owner() int64 {
	if n.dir.opts.Persistent {
		return 0
	}
	return n.inc.SessionID()
}

// removeFound deletes what has the node's GUID.
func (n *Node) removeFound(life context.Context, inc *session.Incarnation) error {
	if err := inc.Sync(life, n.dir.path); err != nil && !errors.Is(err, session.ErrNoNode) {
		return err
	}
	children, _, err := inc.Children(life, n.dir.path)
	if err != nil && !errors.Is(err, session.ErrNoNode) {
		return err
	}
	for _, child := range children {
		if !strings.HasPrefix(child, name(n.path)) {
			continue
		}
		if err := n.delete(life, session.Join(n.dir.path, child)); err != nil && !errors.Is(err, session.ErrNoNode) {
			return err
		}
	}
	return nil
}

// Remove deletes the node and waits until it is proved gone, by an answer of the
// server or by the end of its session. That Run has ended counts as such an end: the node
// is gone then within one session timeout. When ctx ends first, the removal goes on in
// the background and the error wraps the cause. It may be called several times. A
// persistent node that outlives Run can't be removed any more: the error says so.
func (n *Node) Remove(ctx context.Context) error {
	n.Abandon(ctx)
	return n.own.Wait(ctx)
}

// Abandon begins to delete the node in the background, also after ctx has ended.
// It does not block.
func (n *Node) Abandon(ctx context.Context) {
	if n.own.Abandon(ctx) {
		n.dir.addLeaving(n)
	}
}

// remove is one try to delete the node: see [hold.NewOwn]. If it is not known whether it was made, it is looked for.
// remove deletes the node. A create that was sent in a session that is over may still make it: until that session has ended on all
// servers its requests can be under way to one. So remove looks for two session timeouts then.
func (n *Node) remove(life context.Context) error {
	for {
		last := !n.sweep.IsZero() && !time.Now().Before(n.sweep)
		if n.made != "" {
			return n.delete(life, n.made)
		}
		inc, err := n.newest(life)
		if err != nil {
			return err
		}
		over := inc.SessionID() != n.inc.SessionID()
		if over && n.sweep.IsZero() {
			n.sweep = time.Now().Add(2 * n.inc.Timeout())
		}
		if err := n.removeFound(life, inc); err != nil || last || !over {
			return err
		}
		<-time.After(sweepPause)
	}
}

// newest returns the incarnation in which to ask for the node: for a persistent one that is the newest of all.
func (n *Node) newest(ctx context.Context) (*session.Incarnation, error) {
	if n.dir.opts.Persistent {
		return n.dir.session.Incarnation(ctx)
	}
	return n.inc, nil
}

// delete deletes a node that has our GUID: no other ever has its name.
func (n *Node) delete(life context.Context, path string) error {
	inc, err := n.newest(life)
	if err != nil {
		return err
	}
	return hold.Delete(life, inc, path, func(life context.Context) (bool, error) {
		if err := inc.Sync(life, n.dir.path); err != nil && !errors.Is(err, session.ErrNoNode) {
			return false, err
		}
		exists, _, err := inc.Exists(life, path)
		return exists, err
	})
}
