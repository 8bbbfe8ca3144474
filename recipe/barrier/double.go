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
	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/session"
)

// DoubleOptions are the options of a [DoubleBarrier]. The zero value works.
type DoubleOptions struct {
	// Identifier is the data of our znode: who we are, for those who look. It is UTF-8.
	// Default: host name, "-" and process id.
	Identifier string

	// Logger is told what can't be returned as an error, and for whom Leave, or for what that is in our way Enter, waits for
	// long: after about half a minute, and then whenever the time has doubled.
	// With nil, warnings and errors go to slog.Default(); a Logger with slog.DiscardHandler drops all.
	Logger *slog.Logger
}

// DoubleBarrier is one member-to-be of a double barrier.
type DoubleBarrier struct {
	session *session.Session
	path    string
	clients int
	data    []byte
	log     *slog.Logger

	mu     sync.Mutex
	name   string  // of our znode, new after each: a Python process that is slow to leave may look for the last one's, and wait for it
	busy   bool    // entering, entered or leaving
	member *Member // entered and not left
	last   *node   // the latest znode; another is not made before it is gone
}

// NewDouble returns a handle on the double barrier at path that clients members enter
// together. All members must give the same number. It checks its arguments and does no
// I/O. The session must be running for the other methods to succeed.
func NewDouble(s *session.Session, path string, clients int, opts DoubleOptions) (*DoubleBarrier, error) {
	if err := check(s, path); err != nil {
		return nil, err
	}
	if clients < 1 {
		return nil, fmt.Errorf("barrier: clients is %d, want at least 1", clients)
	}
	if !utf8.ValidString(opts.Identifier) {
		return nil, fmt.Errorf("barrier: Identifier %q is no valid UTF-8", opts.Identifier)
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

// Node returns the path of our znode, from Enter to Leave; else, that of the next Enter.
func (d *DoubleBarrier) Node() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return session.Join(d.path, d.name)
}

// Participating reports whether the barrier was entered and not left yet, and whether
// that is still sure at this moment: see [Member.Valid].
func (d *DoubleBarrier) Participating() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.member != nil && d.member.Valid()
}

// Enter waits until the number of members is complete, ours among them. When ctx ends
// before, the error is a [*recipe.BlockedError]. An error that wraps [session.ErrUncertain] says
// that the others may have entered with us, as they may until our znode is removed: so does that
// BlockedError, unless ours was not made yet. ErrLost says that they have, but that our znode is
// gone, or is given up with ctx. Whatever the error, our znode is removed, in the background if need
// be; the next Enter on this handle first waits for that.
func (d *DoubleBarrier) Enter(ctx context.Context) (*Member, error) {
	d.mu.Lock()
	if d.busy {
		d.mu.Unlock()
		return nil, fmt.Errorf("barrier: enter %s: %w", d.path, ErrEntered)
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
	return nil, fmt.Errorf("barrier: enter %s: %w", d.path, err)
}

// complain says who is in the way, if it is time to.
func (d *DoubleBarrier) complain(ctx context.Context, p *seqnode.Patience, b seqnode.Blocker) {
	complain(ctx, d.log, d.path, p, b)
}

// made remembers a znode that must be gone before the next is made.
func (d *DoubleBarrier) made(n *node) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = n
}

// left says that m is over.
func (d *DoubleBarrier) left(m *Member) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.member == m {
		d.member, d.busy, d.name = nil, false, seqnode.NewGUID()
	}
}
