package seqnode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/kielgo/kiel/session"
)

// line is what stands in front of a node.
type line struct {
	first   string // path of the first of all, which is served before the others
	data    []byte // its data, as far as it was read
	nearest string // path of the last one in front of the node: the one to watch
	ahead   int
}

// Wait waits until nothing stands in front of the node and returns the incarnation
// in which that was seen; it was trusted after the look. The node keeps its place
// while the session lives.
//
// When ctx ends first, the error is a [*recipe.BlockedError], or plain when nothing was
// seen in front yet. ErrGone says that the node was removed by somebody else, and
// session.ErrSessionExpired that it went with its session, which a persistent one
// does not.
//
// Every now and then, the first time after about half a minute, the log says who is in front.
func (n *Node) Wait(ctx context.Context) (*session.Incarnation, error) {
	var w Patience
	for {
		inc, l, err := n.look(ctx)
		if err != nil {
			return nil, err
		}
		if l.ahead == 0 {
			return inc, nil
		}
		if err := n.await(ctx, inc, l, &w); err != nil && !n.Outlives(err) {
			return nil, err
		}
	}
}

// First looks once whether nothing stands in front of the node. If so, it returns
// the incarnation in which that was seen; otherwise a [*recipe.BlockedError] that wraps
// blocked. Other errors are those of [Node.Wait].
func (n *Node) First(ctx context.Context, blocked error) (*session.Incarnation, error) {
	for {
		inc, l, err := n.look(ctx)
		if err != nil || l.ahead == 0 {
			return inc, err
		}
		data, _, err := Read(ctx, inc, l.first)
		if errors.Is(err, session.ErrNoNode) || n.Outlives(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return nil, n.dir.blocked(l.first, data, l.ahead, blocked)
	}
}

// look lists the directory and returns what stands in front of the node, in an
// incarnation that was trusted afterwards.
//
// A list that holds the node is new enough: whoever stands in front of it was made
// before it. A list that does not hold it is no answer to the question who is first.
func (n *Node) look(ctx context.Context) (*session.Incarnation, line, error) {
	for {
		inc, err := n.incarnation(ctx)
		if err != nil {
			return nil, line{}, err
		}
		l, err := n.list(ctx, inc)
		if err != nil && !n.Outlives(err) {
			return nil, line{}, err
		}
		if err == nil && inc.Trusted() {
			return inc, l, nil
		}
	}
}

// list asks inc for what stands in front of the node.
func (n *Node) list(ctx context.Context, inc *session.Incarnation) (line, error) {
	children, _, err := inc.Children(ctx, n.dir.path)
	if errors.Is(err, session.ErrNoNode) {
		return line{}, ErrGone
	}
	if err != nil {
		return line{}, err
	}
	return n.front(ctx, inc, children)
}

// Outlives reports whether err is the end of a session, and the node none of those that
// go with it: what failed is to be asked again in the next session.
func (n *Node) Outlives(err error) bool {
	return n.dir.opts.Persistent && errors.Is(err, session.ErrSessionExpired)
}

// incarnation returns the newest incarnation, if the node is there in its session.
func (n *Node) incarnation(ctx context.Context) (*session.Incarnation, error) {
	inc, err := n.dir.session.Incarnation(ctx)
	if err != nil {
		return nil, err
	}
	if !n.dir.opts.Persistent && inc.SessionID() != n.inc.SessionID() {
		return nil, session.ErrSessionExpired
	}
	return inc, nil
}

// front returns what stands in front of the node among children.
func (n *Node) front(ctx context.Context, inc *session.Incarnation, children []string) (line, error) {
	var l line
	if !slices.Contains(children, n.self.Name) {
		return l, ErrGone
	}
	for _, c := range Contenders(children, n.dir.opts.Rivals...) {
		if c.Seq > n.self.Seq {
			break
		}
		if c.Name == n.self.Name {
			continue
		}
		path := session.Join(n.dir.path, c.Name)
		if c.Seq == n.self.Seq {
			older, err := n.olderThanSelf(ctx, inc, path)
			if err != nil {
				return l, err
			}
			if !older {
				continue
			}
		}
		if l.ahead == 0 {
			l.first = path
		}
		l.nearest = path
		l.ahead++
	}
	return l, nil
}

// olderThanSelf compares the czxids of two nodes with the same number.
func (n *Node) olderThanSelf(ctx context.Context, inc *session.Incarnation, path string) (bool, error) {
	exists, self, err := inc.Exists(ctx, n.path)
	if err != nil {
		return false, err
	}
	if !exists {
		return false, ErrGone
	}
	exists, other, err := inc.Exists(ctx, path)
	return exists && other.Czxid < self.Czxid, err
}

// await waits until the nearest node in front is gone. It looks at it again whenever the
// watch says so: after a change, a lost connection, the end of an incarnation, and once
// per session timeout. That it was deleted is believed.
func (n *Node) await(ctx context.Context, inc *session.Incarnation, l line, w *Patience) error {
	for again := false; ; again = true {
		data, _, watch, err := ReadW(ctx, inc, l.nearest)
		if errors.Is(err, session.ErrNoNode) {
			return nil
		}
		if err == nil {
			if err = n.lookAround(ctx, inc, &l, data, again); err == nil {
				n.complain(ctx, inc, l, w)
				err = pause(ctx, watch)
			}
			watch.Stop()
			if err == nil && watch.Deleted() {
				return nil // a round trip less until it is our turn
			}
		}
		if err == nil && inc.Context().Err() != nil {
			inc, err = n.incarnation(ctx)
		}
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return n.dir.blocked(l.first, l.data, l.ahead, context.Cause(ctx))
		default:
			return err
		}
	}
}

// lookAround checks, when not for the first time, that the node still stands, and
// reads the first in the line. Should that be gone, the nearest takes its place, which
// is there and has the given data: only a list could tell more.
func (n *Node) lookAround(ctx context.Context, inc *session.Incarnation, l *line, data []byte, again bool) error {
	if again {
		exists, _, err := inc.Exists(ctx, n.path)
		if err != nil {
			return err
		}
		if !exists {
			return ErrGone
		}
	}
	if l.first != l.nearest {
		first, _, err := Read(ctx, inc, l.first)
		if err == nil {
			l.data = first
			return nil
		}
		if !errors.Is(err, session.ErrNoNode) {
			return err
		}
	}
	l.first, l.data = l.nearest, data
	return nil
}

// Patience tells when to say that somebody has been waiting for long: half a minute after the
// first question, and then whenever the time has doubled. The zero value is ready.
type Patience struct {
	since time.Time
	next  time.Duration
}

// Over reports whether it is to be said now, and how long it has been.
func (p *Patience) Over() (waited time.Duration, over bool) {
	if p.since.IsZero() {
		p.since, p.next = time.Now(), 30*time.Second
	}
	waited = time.Since(p.since)
	for p.next <= waited {
		p.next *= 2
		over = true
	}
	return waited.Round(time.Second), over
}

// Wait waits until done is closed, and calls say whenever it is to be said that this takes long, with how long it has been.
// When ctx ends first it returns its cause.
func (p *Patience) Wait(ctx context.Context, done <-chan struct{}, say func(waited time.Duration)) error {
	for {
		if waited, over := p.Over(); over {
			say(waited)
		}
		timer := time.NewTimer(time.Until(p.since.Add(p.next)))
		select {
		case <-done:
			timer.Stop()
			return nil
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
}

// complain says who is in front, if it is time to.
func (n *Node) complain(ctx context.Context, inc *session.Incarnation, l line, p *Patience) {
	waited, over := p.Over()
	if !over {
		return
	}
	if exists, stat, err := inc.Exists(ctx, l.first); err == nil && exists {
		n.dir.opts.Logger.WarnContext(ctx, "still waiting",
			"path", n.path, "waited", waited, "ahead", l.ahead, "blocker", Blocker{l.first, l.data, stat})
	}
}

// Blocker is a znode that somebody waits for, for the log. Of Stat as much as is known.
type Blocker struct {
	Path string
	Data []byte
	Stat session.Stat
}

// LogValue has a log show who made the znode, and when.
func (b Blocker) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.String("path", b.Path),
		slog.String("data", strings.ToValidUTF8(string(b.Data[:min(len(b.Data), 256)]), "?")),
		slog.String("session_id", fmt.Sprintf("%#x", uint64(b.Stat.EphemeralOwner))),
	}
	if b.Stat.Ctime != 0 {
		attrs = append(attrs, slog.String("since", time.UnixMilli(b.Stat.Ctime).UTC().Format(time.RFC3339)))
	}
	return slog.GroupValue(attrs...)
}

// pause waits until the watch says that it is time to look again.
func pause(ctx context.Context, watch *session.Watch) error {
	select {
	case <-watch.C():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// name returns the last element of path.
func name(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
