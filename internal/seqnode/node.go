package seqnode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/kielgo/kiel/internal/sabotage"
	"github.com/kielgo/kiel/session"
)

// The pause between two tries to remove a node that can't be removed, such as one
// in a directory whose ACL was changed.
const (
	minPause = 100 * time.Millisecond
	maxPause = time.Second
)

// Node is one contender of this process. It is made by [Dir.Create] and ends with
// its ZooKeeper session, unless it is persistent, or when it is removed.
type Node struct {
	dir  *Dir
	inc  *session.Incarnation // of the session that made it; used for as long as that lives
	path string               // without the sequence number until that is known
	self Contender

	remove sync.Once
	gone   chan struct{} // closed when it is proved that the node does not exist, or that can't be
	stays  error         // set before gone is closed: why the node may stand for ever
}

// Path returns the node's path.
func (n *Node) Path() string { return n.path }

// Seq returns the node's sequence number.
func (n *Node) Seq() int64 { return n.self.Seq }

// create makes the node. The requests do not end with ctx, because a request that
// was given up may still be carried out: they go on in the background, and what
// they have made is removed there.
func (n *Node) create(ctx context.Context) error {
	type result struct {
		path string
		err  error
	}
	results := make(chan result)
	letGo := n.keepSession()
	go func() {
		defer letGo()
		life := context.WithoutCancel(ctx)
		path, err := n.make(life, ctx)
		select {
		case results <- result{path, err}:
			if !errors.Is(err, errUnsure) {
				return
			}
		case <-ctx.Done():
			if path != "" {
				n.stays = n.removeAll(life, path)
			}
		}
		if errors.Is(err, errUnsure) {
			n.stays = n.removeUnsure(life)
		}
		close(n.gone)
	}()
	select {
	case r := <-results:
		if errors.Is(r.err, errUnsure) {
			n.dir.addLeaving(n)
		}
		if r.err != nil {
			return r.err
		}
		n.path = r.path
		var ok bool
		if n.self, ok = Parse(name(r.path), n.dir.opts.Word); !ok {
			n.Abandon(ctx)
			return fmt.Errorf("seqnode: the server named a contender %q", r.path)
		}
		return nil
	case <-ctx.Done():
		n.dir.addLeaving(n)
		return context.Cause(ctx)
	}
}

// make creates the node and returns its path. It asks with life, and tries again
// only while ctx lasts. When it returns an error, no node stands, or the error wraps
// errUnsure.
func (n *Node) make(life, ctx context.Context) (string, error) {
	mode := session.EphemeralSequential
	if n.dir.opts.Persistent {
		mode = session.PersistentSequential
	}
	for {
		path, err := n.inc.Create(life, n.path, n.dir.opts.Data, mode)
		if errors.Is(err, session.ErrUncertain) {
			if path, err = n.find(life); n.leavesUnsure(err) {
				err = fmt.Errorf("%w: %w", errUnsure, err)
			}
		}
		if errors.Is(err, session.ErrNoNode) && !sabotage.Of(life).Off(sabotage.EnsureAgain) {
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
	off := sabotage.Of(life)
	if off.Off(sabotage.FindByGUID) {
		return "", nil
	}
	if !off.Off(sabotage.SyncBeforeLook) {
		if err := n.inc.Sync(life, n.dir.path); err != nil {
			return "", err
		}
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
		case !exists || stat.EphemeralOwner != n.owner() && !off.Off(sabotage.OwnSession):
		case found == "":
			found = path
		case off.Off(sabotage.OneOfGUID):
		default:
			_ = n.removeAll(life, path)
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
	case over(err):
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

// removeUnsure removes what a create has perhaps made, as soon as the server lets us see it.
func (n *Node) removeUnsure(life context.Context) error {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		err := n.removeFound(life, n.inc)
		switch {
		case err == nil:
			return nil
		case over(err) && n.dir.opts.Persistent:
			return n.sweep(life)
		case over(err):
			return nil
		}
		n.dir.opts.Logger.WarnContext(life, "not known yet whether a contender was made", "path", n.path, "error", err)
		<-time.After(pause)
	}
}

// sweep removes what a create in a session that is over has made, or may yet make: until
// that session has ended on all servers, too, its requests can still be under way to one.
// So it looks for two session timeouts.
func (n *Node) sweep(life context.Context) error {
	for end := time.Now().Add(2 * n.inc.Timeout()); ; <-time.After(maxPause) {
		last := !time.Now().Before(end)
		inc, err := n.dir.session.Incarnation(life)
		if err == nil {
			err = n.removeFound(life, inc)
		}
		switch {
		case closed(err):
			return fmt.Errorf("seqnode: %s may stand: %w", n.path, err)
		case err == nil && last:
			return nil
		case err != nil:
			n.dir.opts.Logger.WarnContext(life, "contender not removed yet", "path", n.path, "error", err)
		}
	}
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
		if err := n.removeAll(life, session.Join(n.dir.path, child)); err != nil {
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
	select {
	case <-n.gone:
		return n.stays
	case <-ctx.Done():
	}
	select {
	case <-n.gone: // known, though late
		return n.stays
	default:
		return context.Cause(ctx)
	}
}

// Abandon begins to delete the node in the background, also after ctx has ended.
// It does not block.
func (n *Node) Abandon(ctx context.Context) {
	n.remove.Do(func() {
		n.dir.addLeaving(n)
		letGo := n.keepSession()
		go func() {
			defer close(n.gone)
			defer letGo()
			n.stays = n.removeAll(context.WithoutCancel(ctx), n.path)
		}()
	})
}

// keepSession keeps Run from ending, for as long as it waits for anybody, before a persistent
// node is removed. One that is not goes with the session.
func (n *Node) keepSession() (letGo func()) {
	if n.dir.opts.Persistent {
		return n.dir.session.Hold()
	}
	return func() {}
}

// removeAll deletes path until it is gone or its session is over. If path is persistent
// and Run has ended, it returns an error.
func (n *Node) removeAll(life context.Context, path string) error {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		err := n.removeOnce(life, path)
		switch {
		case err == nil, errors.Is(err, session.ErrNoNode):
			return nil
		case !n.dir.opts.Persistent && over(err):
			return nil
		case closed(err):
			return fmt.Errorf("seqnode: %s stands: %w", path, err)
		}
		n.dir.opts.Logger.WarnContext(life, "contender not removed yet", "path", path, "error", err)
		<-time.After(pause)
	}
}

// removeOnce sends one delete, and finds out what became of it.
func (n *Node) removeOnce(life context.Context, path string) error {
	inc := n.inc
	if n.dir.opts.Persistent {
		var err error
		if inc, err = n.dir.session.Incarnation(life); err != nil {
			return err
		}
	}
	err := inc.Delete(life, path, -1)
	if errors.Is(err, session.ErrUncertain) {
		return n.checkGone(life, inc, path, err)
	}
	return err
}

// checkGone returns nil when path is not there any more, and lost otherwise. No
// other node ever has this name: the GUID in it is ours alone.
func (n *Node) checkGone(life context.Context, inc *session.Incarnation, path string, lost error) error {
	if err := inc.Sync(life, n.dir.path); err != nil && !errors.Is(err, session.ErrNoNode) {
		return err
	}
	exists, _, err := inc.Exists(life, path)
	if err != nil {
		return err
	}
	if exists {
		return lost
	}
	return nil
}

// over reports whether err says that the session of an incarnation has ended, and
// its ephemeral nodes with it. If Run has ended they may stand for a session timeout.
func over(err error) bool { return errors.Is(err, session.ErrSessionExpired) || closed(err) }

// closed reports whether err says that there will be no incarnation any more.
func closed(err error) bool {
	return errors.Is(err, session.ErrClosed) || errors.Is(err, session.ErrAuthFailed)
}
