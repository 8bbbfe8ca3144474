package seqnode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/session"
)

// sweepPause is the time between two searches for a node that a create in an ended session may still make.
const sweepPause = time.Second

// Node is one contender of this process, created by [Dir.Create]. It exists until it is removed or, unless it is persistent,
// until its ZooKeeper session ends.
type Node struct {
	dir  *Dir
	inc  *session.Incarnation // the incarnation in which it was created; valid for requests while its session lives
	path string               // its znode; without the sequence number until that is known
	self Contender
	own  *hold.Own

	// Only the goroutine that creates or removes the node uses the fields below.
	made  string    // the path of its znode; "" while the outcome of the create is unknown
	sweep time.Time // when the search after the end of its session ends; zero while the session lives
}

// Path returns the path of the node.
func (n *Node) Path() string { return n.path }

// create creates the node. Its requests do not end with ctx: see [hold.Own.Make].
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
		return fmt.Errorf("server returned %q for a contender of %s", path, n.dir.path)
	}
	return nil
}

// make creates the node and returns its path. Requests run with life; they are repeated only while ctx lasts. After an error no
// node exists, unless the error wraps hold.ErrUnsure.
func (n *Node) make(life, ctx context.Context) (string, error) {
	mode := session.EphemeralSequential
	if n.dir.opts.Persistent {
		mode = session.PersistentSequential
	}
	for {
		path, err := n.inc.Create(life, n.path, n.dir.opts.Data, mode)
		if errors.Is(err, session.ErrUncertain) {
			if path, err = n.find(life); n.leavesUnsure(err) {
				err = operr.Because(hold.ErrUnsure, err)
			}
		}
		if errors.Is(err, session.ErrNoNode) {
			err = n.inc.EnsurePath(life, n.dir.path)
			if errors.Is(err, session.ErrUncertain) {
				err = nil // the next create shows the outcome
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

// find looks for the node after the reply to its create was lost, and returns its path, or "" if it was not created. The create
// has returned and the Sync follows it, so a node that find does not see will not appear later. If there are several, find keeps
// the first and removes the others.
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
			_ = double.Wait(life) // the log reports a removal that fails
		}
	}
	return found, nil
}

// leavesUnsure reports whether the node may exist after find returned err: the server refused the search, or the session has
// ended and the node is persistent.
func (n *Node) leavesUnsure(err error) bool {
	switch {
	case err == nil, errors.Is(err, session.ErrNoNode): // the directory is missing
		return false
	case hold.Over(err):
		return n.dir.opts.Persistent
	default:
		return true
	}
}

// owner returns the EphemeralOwner of the node.
func (n *Node) owner() int64 {
	if n.dir.opts.Persistent {
		return 0
	}
	return n.inc.SessionID()
}

// removeFound deletes the children of the directory that have the node's GUID.
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

// Remove deletes the node and waits until it is proved gone, by an answer of the server or by the end of its session. The end of
// Run counts as the end of the session: the node is then gone within one session timeout. When ctx ends first, the error wraps
// its cause and the removal goes on in the background. Remove may be called several times. It returns an error if Run has ended
// while a persistent node exists: nothing removes that node any more.
func (n *Node) Remove(ctx context.Context) error {
	n.Abandon(ctx)
	return n.own.Wait(ctx)
}

// Abandon starts to delete the node in the background, even if ctx has ended. It does not block.
func (n *Node) Abandon(ctx context.Context) {
	if n.own.Abandon(ctx) {
		n.dir.addLeaving(n)
	}
}

// remove tries once to delete the node: see [hold.NewOwn]. If the outcome of the create is unknown, remove looks for the node by
// its GUID. A create that was sent in an ended session may still be carried out: until that session has ended on all servers, the
// request can be on its way to one of them. So remove then repeats its search for two session timeouts.
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

// newest returns the incarnation for requests about the node: the newest of all for a persistent one, otherwise its own.
func (n *Node) newest(ctx context.Context) (*session.Incarnation, error) {
	if n.dir.opts.Persistent {
		return n.dir.session.Incarnation(ctx)
	}
	return n.inc, nil
}

// delete deletes a znode with the node's GUID. No other znode ever has that name, so delete needs no version.
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
