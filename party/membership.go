package party

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/session"
)

// membership is what KazooParty and ShallowParty have in common: a directory, and this member's znode in it, whose name stays the
// same.
type membership struct {
	sess *session.Session
	path string // the directory
	node string // this member's znode
	data []byte // that znode's data
	log  *slog.Logger

	mu  sync.Mutex
	now *presence // the newest presence; nil before the first Join
}

// presence is one stay in the directory, from Join to Leave. It has a goroutine, which ends with the stay or with the session.
type presence struct {
	*membership
	cancel  context.CancelFunc                  // ends wanted
	wanted  <-chan struct{}                     // closed when the stay is to end
	in      chan struct{}                       // closed when the znode was seen the first time
	failed  chan struct{}                       // closed when the znode could not be created; gone is closed after it
	gone    chan struct{}                       // closed when the znode or its session is gone
	seen    atomic.Pointer[session.Incarnation] // the incarnation in which the znode was seen last; nil when it may be missing
	err     error                               // why the stay ended; set before gone is closed
	refusal error                               // why the znode could not be created; set before failed is closed
	inc     *session.Incarnation                // the newest incarnation; only the goroutine uses it
	made    bool                                // whether removal has to look for the znode; only the goroutine uses it
	adopted bool                                // whether no session owns the znode; only the goroutine uses it
	joiners int                                 // how many calls of Join wait; guarded by mu
	owner   atomic.Int64                        // the session that owned the znode when it was seen last

	patience seqnode.Patience // with a znode of this name that another session owns; only the goroutine uses it
}

func (m *membership) join(ctx context.Context) error {
	err := context.Cause(ctx)
	if err != nil {
		return operr.New("party", "join", m.node, err)
	}
	p := m.enter(ctx)
	select {
	case <-p.in:
	case <-p.failed:
		err = p.refusal
	case <-p.gone:
		err = p.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p.joiners--
	switch {
	case err == nil:
		return nil
	case p.joined() && !p.ending():
		return nil // even if ctx has ended: other callers may rely on the membership
	case p.joiners == 0:
		p.cancel() // the goroutine deletes the znode
	}
	return operr.New("party", "join", m.node, err)
}

// enter returns the presence that goes on, or begins one.
func (m *membership) enter(ctx context.Context) *presence {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.now
	if last != nil && !last.ending() {
		last.joiners++
		return last
	}
	life := context.WithoutCancel(ctx)
	wanted, cancel := context.WithCancel(life)
	p := &presence{
		membership: m,
		cancel:     cancel,
		wanted:     wanted.Done(),
		in:         make(chan struct{}),
		failed:     make(chan struct{}),
		gone:       make(chan struct{}),
		joiners:    1,
	}
	m.now = p
	go func() {
		defer close(p.gone)
		defer cancel()
		if last != nil {
			// The last presence must be over, else its removal could delete the new znode. It ends with the session at the
			// latest, so the wait needs no other end.
			_ = p.patience.Wait(life, last.gone, func(waited time.Duration) {
				m.log.WarnContext(life, "still waiting", "waited", waited,
					"blocker", seqnode.Blocker{Path: m.node, Data: m.data, Stat: session.Stat{EphemeralOwner: last.owner.Load()}})
			})
			p.patience = seqnode.Patience{}
		}
		p.err = p.run(life, wanted)
		p.seen.Store(nil)
		if p.err == nil {
			p.err = ErrLeft
		}
	}()
	return p
}

// ending reports whether p has ended or is to end.
func (p *presence) ending() bool {
	select {
	case <-p.wanted:
		return true
	case <-p.gone:
		return true
	default:
		return false
	}
}

func (m *membership) leave(ctx context.Context) error {
	m.mu.Lock()
	p := m.now
	m.mu.Unlock()
	if p == nil {
		return nil
	}
	p.cancel()
	select {
	case <-p.gone:
		return nil
	case <-ctx.Done():
		return operr.New("party", "leave", m.node, context.Cause(ctx))
	}
}

func (m *membership) isMember() bool {
	m.mu.Lock()
	p := m.now
	m.mu.Unlock()
	if p == nil || p.ending() {
		return false
	}
	inc := p.seen.Load()
	return inc != nil && inc.Trusted()
}

// run keeps the znode in existence until wanted ends, and then removes it. Writes get the context life, because the server may
// execute a write that was given up.
func (p *presence) run(life, wanted context.Context) error {
	for wanted.Err() == nil {
		inc, err := p.sess.Incarnation(wanted)
		if err != nil {
			if wanted.Err() == nil {
				return err // the session is closed, and the znode goes with it
			}
			break
		}
		if p.inc != nil && p.inc.SessionID() != inc.SessionID() {
			p.made = p.adopted // the znode of the last session ends with that
		}
		p.inc = inc
		err = p.stay(life, wanted, inc)
		switch {
		case err == nil, wanted.Err() != nil, session.Retryable(err):
		case session.Classify(err) == session.ClassFatal && !p.joined():
			// The znode may exist, if it is only unreadable, and then it stays as long as the servers refuse to show it. Join
			// does not wait for that.
			p.refusal = err
			p.cancel()
			close(p.failed)
			return errors.Join(err, p.remove(life))
		default:
			p.log.WarnContext(life, "join failed, trying again", "error", err)
			_ = pause.Sleep(wanted, maxPace)
		}
	}
	return p.remove(life)
}

func (p *presence) joined() bool {
	select {
	case <-p.in:
		return true
	default:
		return false
	}
}

// stay keeps the znode in existence during one incarnation. It returns nil when the incarnation or wanted has ended.
func (p *presence) stay(life, wanted context.Context, inc *session.Incarnation) error {
	for wanted.Err() == nil && inc.Context().Err() == nil {
		exists, stat, watch, err := inc.ExistsW(wanted, p.node)
		if err != nil {
			return err
		}
		switch {
		case !exists:
			watch.Stop()
			p.seen.Store(nil)
			err := create(life, inc, p.path, p.node, p.data)
			p.made = p.made || err == nil || errors.Is(err, hold.ErrUnsure)
			if err != nil {
				return err
			}
			continue
		case stat.EphemeralOwner == inc.SessionID(), stat.EphemeralOwner == 0:
			p.adopted = stat.EphemeralOwner == 0
			p.owner.Store(stat.EphemeralOwner)
			p.patience = seqnode.Patience{}
			p.seen.Store(inc)
			p.made = true
			if !p.joined() {
				close(p.in)
			}
		default:
			// Nobody else has this name: the znode is that of the last session, which is about to end. The znode must not be
			// taken for the new session's.
			p.seen.Store(nil)
			if waited, over := p.patience.Over(); over {
				p.log.WarnContext(life, "still waiting", "waited", waited,
					"blocker", seqnode.Blocker{Path: p.node, Data: p.data, Stat: stat})
			}
		}
		select {
		case <-watch.C():
		case <-wanted.Done():
		}
		watch.Stop()
	}
	return nil
}

// create creates this member's znode. It returns nil if the outcome is known, or will show when the caller reads the znode. An
// error wraps hold.ErrUnsure if the znode may have been created.
func create(ctx context.Context, inc *session.Incarnation, dir, node string, data []byte) error {
	_, err := inc.Create(ctx, node, data, session.Ephemeral)
	switch {
	case errors.Is(err, session.ErrNodeExists):
		return nil
	case errors.Is(err, session.ErrUncertain):
		// Before the answer to a Sync the create was executed, or it never will be.
		err = inc.Sync(ctx, dir)
		if err == nil || errors.Is(err, session.ErrNoNode) {
			return nil
		}
		return operr.Because(hold.ErrUnsure, err)
	case errors.Is(err, session.ErrNoNode):
		err = inc.EnsurePath(ctx, dir)
		if errors.Is(err, session.ErrUncertain) {
			return nil
		}
		return err
	default:
		return err
	}
}

// remove tries to delete the znode until it is gone or its session is over. A znode that was never created needs no request,
// which the servers might refuse for as long as the session lives.
func (p *presence) remove(life context.Context) error {
	p.seen.Store(nil)
	if p.inc == nil || !p.made {
		return nil
	}
	own := hold.NewOwn(p.node, p.log, nil, p.removeOnce)
	own.Abandon(life)
	return own.Wait(life)
}

// removeOnce reads the znode and deletes it if it is this member's. A request whose reply was lost was executed before the answer
// to the Sync, or never will be.
func (p *presence) removeOnce(life context.Context) error {
	err := p.inc.Sync(life, p.path)
	if err == nil || errors.Is(err, session.ErrNoNode) {
		var exists bool
		var stat session.Stat
		exists, stat, err = p.inc.Exists(life, p.node)
		// A znode of another session is one of an older session, and ends with that.
		if err == nil && exists && (stat.EphemeralOwner == 0 || stat.EphemeralOwner == p.inc.SessionID()) {
			err = p.inc.Delete(life, p.node, -1)
		}
	}
	if errors.Is(err, session.ErrSessionExpired) && p.adopted {
		// No session's end deletes this znode.
		if p.inc, err = p.sess.Incarnation(life); err == nil {
			return p.removeOnce(life)
		}
	}
	return err
}

// reader returns the identifiers of those children that are members.
type reader func(ctx context.Context, inc *session.Incarnation, children []string) ([]string, error)

// members waits until there are n members and returns their identifiers.
func (m *membership) members(ctx context.Context, n int, identifiers reader) ([]string, error) {
	last := 0
	for {
		list, watch, err := m.look(ctx, identifiers)
		if err == nil && len(list) >= n {
			watch.Stop()
			return list, nil
		}
		if err == nil {
			last = len(list)
			select {
			case <-watch.C():
			case <-ctx.Done():
			}
			watch.Stop()
		}
		switch {
		case ctx.Err() != nil && n > 0:
			there := fmt.Errorf("there are %d: %w", last, context.Cause(ctx))
			return nil, operr.New("party", fmt.Sprintf("wait for %d members of", n), m.path, there)
		case err != nil && (ctx.Err() != nil || !errors.Is(err, session.ErrSessionExpired)):
			return nil, operr.New("party", "members of", m.path, err)
		}
	}
}

// look reads the members once. The watch wakes when they may have changed.
func (m *membership) look(ctx context.Context, identifiers reader) ([]string, *session.Watch, error) {
	inc, err := m.sess.Incarnation(ctx)
	if err != nil {
		return nil, nil, err
	}
	for {
		children, _, watch, err := inc.ChildrenW(ctx, m.path)
		if errors.Is(err, session.ErrNoNode) {
			var exists bool
			if exists, _, watch, err = inc.ExistsW(ctx, m.path); exists {
				watch.Stop()
				continue
			}
			return nil, watch, err
		}
		if err != nil {
			return nil, nil, err
		}
		list, err := identifiers(ctx, inc, children)
		if err != nil {
			watch.Stop()
			return nil, nil, err
		}
		slices.Sort(list)
		return list, watch, nil
	}
}
