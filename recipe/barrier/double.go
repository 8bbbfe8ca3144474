package barrier

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/kielgo/kiel/internal/defaultlog"
	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/session"
)

// DoubleOptions are the options of a [DoubleBarrier]. The zero value works.
type DoubleOptions struct {
	// Identifier is the data of this member's znode, for people who read it. It is UTF-8. Default: host name, "-" and process id.
	Identifier string

	// Logger gets errors that no call can return, and a warning with the znode for which Enter or Leave waits for long: after
	// about half a minute, and then whenever the time has doubled. With nil, warnings and errors go to slog.Default(); a Logger
	// with slog.DiscardHandler drops all.
	Logger *slog.Logger
}

// DoubleBarrier is a handle on a double barrier, for one member.
type DoubleBarrier struct {
	session *session.Session
	path    string
	clients int
	data    []byte
	log     *slog.Logger

	mu     sync.Mutex
	name   string  // name of our next znode. A new one each time: a slow Python process may still wait for the last one to go
	busy   bool    // whether an Enter goes on, or its member has not left
	member *Member // the member that has entered and not left, or nil
	last   *node   // our latest znode; the next one is not created before this one is gone
}

// NewDouble returns a handle on the double barrier at path that clients members enter together. All members must give the same
// number. It checks its arguments and does no I/O. The session must be running for the other methods to succeed.
func NewDouble(s *session.Session, path string, clients int, opts DoubleOptions) (*DoubleBarrier, error) {
	if err := check(s, path); err != nil {
		return nil, err
	}
	if clients < 1 {
		return nil, operr.New("barrier", "", "", fmt.Errorf("argument clients: %d is less than 1", clients))
	}
	if !utf8.ValidString(opts.Identifier) {
		return nil, operr.New("barrier", "", "", fmt.Errorf("option Identifier: %q is not valid UTF-8", opts.Identifier))
	}
	if opts.Identifier == "" {
		host, _ := os.Hostname() // kazoo has the fully qualified name
		opts.Identifier = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	opts.Logger = defaultlog.Or(opts.Logger)
	return &DoubleBarrier{
		session: s,
		path:    path,
		clients: clients,
		name:    seqnode.NewGUID(),
		data:    []byte(opts.Identifier),
		log:     opts.Logger,
	}, nil
}

// Clients returns how many members enter together.
func (d *DoubleBarrier) Clients() int { return d.clients }

// Node returns the path of this member's znode, from Enter to Leave; else, that of the next Enter.
func (d *DoubleBarrier) Node() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return session.Join(d.path, d.name)
}

// Participating reports whether a member has entered through this handle, has not left, and is valid at this moment: see
// [Member.Valid].
func (d *DoubleBarrier) Participating() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.member != nil && d.member.Valid()
}

// Enter waits until the required number of members exists, its own among them. When ctx ends before, the error is a
// [*recipe.BlockedError]. An error that wraps [session.ErrUncertain] says that the others may have entered with this member, or
// may until its znode is deleted; that BlockedError wraps it, unless the znode was not created yet. ErrLost says that the others
// have entered with this member, but that its znode is gone, or ctx has ended. After any error the znode is deleted, in the
// background if need be; the next Enter on this handle first waits for that.
func (d *DoubleBarrier) Enter(ctx context.Context) (*Member, error) {
	d.mu.Lock()
	if d.busy {
		d.mu.Unlock()
		return nil, operr.New("barrier", "enter", d.path, ErrEntered)
	}
	d.busy = true
	last := d.last
	e := &entering{d: d, ctx: ctx, name: d.name}
	d.mu.Unlock()

	var m *Member
	var err error
	if last != nil {
		var patience seqnode.Patience
		ended := patience.Wait(ctx, last.own.Gone(), func(waited time.Duration) {
			d.log.WarnContext(ctx, "still waiting", "path", d.path, "waited", waited, "blocker",
				seqnode.Blocker{Path: last.path, Data: d.data, Stat: session.Stat{EphemeralOwner: last.inc.SessionID()}})
		})
		if ended != nil {
			err = blocked(d.path, last.path, d.data, ended)
		}
	}
	if err == nil {
		m, err = e.run()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		d.member = m
		return m, nil
	}
	if e.node != nil {
		e.node.own.Abandon(ctx)
	}
	d.busy, d.name = false, seqnode.NewGUID()
	if _, ok := hold.Blocked(ctx, err); ok {
		return nil, err
	}
	return nil, operr.New("barrier", "enter", d.path, err)
}

// warnWaiting logs a warning with the znode that is waited for, if the patience is over.
func (d *DoubleBarrier) warnWaiting(ctx context.Context, p *seqnode.Patience, b seqnode.Blocker) {
	warnWaiting(ctx, d.log, d.path, p, b)
}

// made stores a znode that must be gone before the next one is created.
func (d *DoubleBarrier) made(n *node) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = n
}

// left makes the handle free for the next Enter.
func (d *DoubleBarrier) left(m *Member) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.member == m {
		d.member, d.busy, d.name = nil, false, seqnode.NewGUID()
	}
}
