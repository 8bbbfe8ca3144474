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

// line describes the contenders that precede a node.
type line struct {
	first   string // path of the first of all contenders, which is served before the others
	data    []byte // data of first; nil until it is read
	nearest string // path of the last contender that precedes the node: the one to watch
	ahead   int    // how many contenders precede the node
}

// Wait waits until no contender precedes the node, and returns the incarnation in which that was seen. That incarnation was
// trusted after the list had arrived. The node keeps its place while its session lives.
//
// When ctx ends first, the error is a [*recipe.BlockedError] if a contender was seen in front, otherwise it wraps the cause. Wait
// returns ErrGone if somebody else removed the node, and session.ErrSessionExpired if the node went with its session. A
// persistent node does not go with its session.
//
// The log names the contender in front after about half a minute, and again whenever the time has doubled.
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

// First checks once whether a contender precedes the node. If none does, First returns the incarnation in which that was seen,
// otherwise a [*recipe.BlockedError] that wraps blocked. Other errors are those of [Node.Wait].
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

// look lists the directory and returns the contenders that precede the node, and the incarnation of the list, which was trusted
// when the list had arrived.
//
// A list that holds the node is recent enough: contenders that precede the node were created before it. A list that does not hold
// the node does not show which contender is first.
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

// list reads the directory in inc and returns the contenders that precede the node.
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

// Outlives reports whether err says that a session has ended while the node is persistent: the caller repeats its request in the
// next session.
func (n *Node) Outlives(err error) bool {
	return n.dir.opts.Persistent && errors.Is(err, session.ErrSessionExpired)
}

// incarnation returns the newest incarnation, or session.ErrSessionExpired if the node went with an earlier session.
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

// front returns the contenders among children that precede the node.
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

// olderThanSelf reports whether the contender at path, which has the node's number, has a smaller czxid.
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

// await waits until the nearest contender in front is gone. It reads that contender again whenever the watch fires: after a
// change, a lost connection, the end of an incarnation, and once per session timeout. A watch that reports a deletion is proof
// enough.
func (n *Node) await(ctx context.Context, inc *session.Incarnation, l line, w *Patience) error {
	for again := false; ; again = true {
		data, _, watch, err := ReadW(ctx, inc, l.nearest)
		if errors.Is(err, session.ErrNoNode) {
			return nil
		}
		if err == nil {
			if err = n.recheck(ctx, inc, &l, data, again); err == nil {
				n.warn(ctx, inc, l, w)
				err = pause(ctx, watch)
			}
			watch.Stop()
			if err == nil && watch.Deleted() {
				return nil // saves a round trip before the node's turn
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

// recheck reads the first contender of the line and, if again is set, checks that the node itself still exists. If the first
// contender is gone, the nearest, whose data is given, takes its place in l: only a list would show the new first.
func (n *Node) recheck(ctx context.Context, inc *session.Incarnation, l *line, data []byte, again bool) error {
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

// Patience decides when to log that a wait takes long: half a minute after the first call of [Patience.Over], and then whenever
// the time has doubled. The zero value is ready for use.
type Patience struct {
	since time.Time     // the first call of Over
	next  time.Duration // the time after since at which the next log line is due
}

// Over reports whether a log line is due now, and how long the wait has lasted.
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

// Wait waits until done is closed, and calls warn whenever a log line is due, with the time waited. When ctx ends first, Wait
// returns its cause.
func (p *Patience) Wait(ctx context.Context, done <-chan struct{}, warn func(waited time.Duration)) error {
	for {
		if waited, over := p.Over(); over {
			warn(waited)
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

// warn logs the first contender of the line if that is due.
func (n *Node) warn(ctx context.Context, inc *session.Incarnation, l line, p *Patience) {
	waited, over := p.Over()
	if !over {
		return
	}
	if exists, stat, err := inc.Exists(ctx, l.first); err == nil && exists {
		n.dir.opts.Logger.WarnContext(ctx, "still waiting",
			"path", n.path, "waited", waited, "ahead", l.ahead, "blocker", Blocker{l.first, l.data, stat})
	}
}

// Blocker is a znode that a caller waits for, as the log shows it.
type Blocker struct {
	Path string
	Data []byte
	Stat session.Stat // unknown fields are zero
}

// LogValue shows the path, the data, the session and, if known, the creation time of the znode.
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

// pause waits until the watch fires, or ctx ends.
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
