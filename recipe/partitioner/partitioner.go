package partitioner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kielgo/kiel/internal/latest"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

// State is one of kazoo's four states.
type State int

// The states.
const (
	// Allocating: the set is being divided.
	Allocating State = iota
	// Acquired: the items of [SetPartitioner.Allocation] are ours.
	Acquired
	// Release: stop working on the items, then call ReleaseSet.
	Release
	// Failure: nothing is ours and nothing will be. Start anew, or not.
	Failure
)

// String returns kazoo's name of the state.
func (s State) String() string {
	switch s {
	case Allocating:
		return "ALLOCATING"
	case Acquired:
		return "ACQUIRED"
	case Release:
		return "RELEASE"
	case Failure:
		return "FAILURE"
	default:
		return fmt.Sprintf("state %d", int(s))
	}
}

// SetPartitioner is one member of those who divide a set. Several may be used in one
// process, with different identifiers.
type SetPartitioner struct {
	sess  *session.Session
	path  string
	opts  Options
	items []string // in their order
	locks map[string]*lock.Lock
	room  int // how many bytes of the session's budget of ephemeral znodes there are for locks, at most

	latest  *latest.Value[Snapshot] // without the channel that Snapshot fills in
	machine atomic.Pointer[machine] // of the newest Start or Run

	// Of the machine that runs. They outlive it, or one that begins anew more often than
	// a double can be told from what a dead member leaves would never find out.
	doubles    map[string]time.Time // since when other members have our identifier, by their znode
	reconnects uint64               // how often the session had reconnected then
}

// Snapshot is a state and what belongs to it. It never changes.
type Snapshot struct {
	State State
	ID    uint64          // grows by one with each transition
	Err   error           // why, in FAILURE
	next  <-chan struct{} // closed at the next transition
	alloc *Allocation
}

// Changed is closed when another state has come. Read it before acting on the state, and
// no transition is missed.
func (s *Snapshot) Changed() <-chan struct{} { return s.next }

// Allocation returns what is ours in the state ACQUIRED, nil in others.
func (s *Snapshot) Allocation() *Allocation { return s.alloc }

// New returns a member of those who divide items at path. It checks its arguments and does
// no I/O; Start or Run begins. Options.Logger gets a warning if the session's budget of ephemeral znodes
// is too small for the locks of all items, with how many it is enough for.
func New(s *session.Session, path string, items []string, opts Options) (*SetPartitioner, error) {
	if s == nil {
		return nil, errors.New("partitioner: no session")
	}
	if err := session.CheckPath(path); err != nil {
		return nil, fmt.Errorf("partitioner: %w", err)
	}
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &SetPartitioner{sess: s, path: path, opts: opts, latest: latest.New(&Snapshot{}), locks: make(map[string]*lock.Lock, len(items)), doubles: make(map[string]time.Time)}
	if p.items, err = sorted(items, opts.Order); err != nil {
		return nil, err
	}
	paths, err := lockPaths(session.Join(path, "locks"), items, opts.Escape)
	if err != nil {
		return nil, err
	}
	crowd, err := p.newParty() // checks the identifier
	if err != nil {
		return nil, fmt.Errorf("partitioner: %w", err)
	}
	for _, item := range slices.Sorted(maps.Keys(paths)) {
		if p.locks[item], err = lock.New(s, paths[item], lock.Options{Logger: opts.Logger}); err != nil {
			return nil, fmt.Errorf("partitioner: item %q: %w", item, err)
		}
	}
	p.room = s.EphemeralBudget() - s.EphemeralSize(crowd.Node(), session.Ephemeral)
	if most := p.mostItems(); most < len(p.locks) {
		opts.Logger.Warn("one member can't hold all items, its session's budget of ephemeral znodes is too small",
			"path", path, "items", len(p.locks), "most", most, "budget", s.EphemeralBudget())
	}
	return p, nil
}

func (p *SetPartitioner) newParty() (*party.ShallowParty, error) {
	return party.NewShallowParty(p.sess, session.Join(p.path, "party"), party.KazooOptions{Identifier: p.opts.Identifier, Logger: p.opts.Logger})
}

// Identifier returns our name among the members.
func (p *SetPartitioner) Identifier() string { return p.opts.Identifier }

// Snapshot returns the present state. It never blocks.
func (p *SetPartitioner) Snapshot() *Snapshot {
	s, next := p.latest.Watch()
	now := *s
	now.next = next
	return &now
}

// State returns the present state.
func (p *SetPartitioner) State() State { return p.Snapshot().State }

// Allocating reports whether the set is being divided: WaitForAcquire.
func (p *SetPartitioner) Allocating() bool { return p.State() == Allocating }

// Acquired reports whether there are items to work on: Allocation.
func (p *SetPartitioner) Acquired() bool { return p.State() == Acquired }

// MustRelease reports whether the items must be given back: ReleaseSet.
func (p *SetPartitioner) MustRelease() bool { return p.State() == Release }

// Failed reports whether this is over: see Snapshot().Err.
func (p *SetPartitioner) Failed() bool { return p.State() == Failure }

// Allocation returns what is ours, nil in every state but ACQUIRED. A function under Run asks [Hold].
func (p *SetPartitioner) Allocation() *Allocation { return p.Snapshot().Allocation() }

// Items returns the items that are ours, none in every state but ACQUIRED.
func (p *SetPartitioner) Items() []string {
	return p.Allocation().Items()
}

// publish makes a new state known. Only begin calls it, and then the goroutine of the machine.
func (p *SetPartitioner) publish(state State, alloc *Allocation, err error) {
	p.latest.Store(&Snapshot{State: state, ID: p.latest.Load().ID + 1, Err: err, alloc: alloc})
	p.opts.Logger.Debug("state of set partitioner", "path", p.path, "state", state.String(), "error", err)
}

// Start joins the party and begins to divide the set, in the background, until Finish. It
// returns when we have joined. When ctx ends first, all is undone in the background and the
// error wraps the cause. After FAILURE it may be called again, which begins anew, once what we had
// is given up; if ctx ends before that, the error wraps ErrUnfinished, too.
func (p *SetPartitioner) Start(ctx context.Context) error {
	m, err := p.begin(ctx, false)
	if err != nil {
		return fmt.Errorf("partitioner: start %s: %w", p.path, err)
	}
	select {
	case <-m.joined:
		return nil
	case <-m.done:
		return p.failure("start", context.Cause(m.ctx))
	case <-ctx.Done():
		m.stop(context.Cause(ctx))
		return fmt.Errorf("partitioner: start %s: %w", p.path, context.Cause(ctx))
	}
}

func (p *SetPartitioner) failure(op string, err error) error {
	return fmt.Errorf("partitioner: %s: %w", op, &FailedError{Path: p.path, Err: err})
}

// started returns what Start made, or what a Run that has ended left.
func (p *SetPartitioner) started(op string) (*machine, error) {
	m := p.machine.Load()
	if m == nil || m.ofRun && m.ctx.Err() == nil {
		return nil, fmt.Errorf("partitioner: %s %s: %w", op, p.path, ErrNotStarted)
	}
	return m, nil
}

// WaitForAcquire waits while the state is ALLOCATING, for Options.AcquireTimeout at most. True says that it has become
// ACQUIRED, or was that already. False without an error says to look at the state again, as kazoo's loop does: it is
// RELEASE, for which nothing is waited for, or the time has passed.
//
// In FAILURE it returns a [*FailedError], and ErrNotStarted before Start or Run was called. When ctx ends first the error
// wraps its cause.
func (p *SetPartitioner) WaitForAcquire(ctx context.Context) (acquired bool, err error) {
	timer := time.NewTimer(p.opts.AcquireTimeout)
	defer timer.Stop()
	for late := false; ; {
		now := p.Snapshot()
		switch {
		case now.State == Acquired:
			return true, nil
		case now.State == Failure:
			return false, p.failure("wait", now.Err)
		case p.machine.Load() == nil:
			return false, fmt.Errorf("partitioner: wait for %s: %w", p.path, ErrNotStarted)
		case now.State == Release, late && ctx.Err() == nil:
			return false, nil
		}
		select {
		case <-now.next:
		case <-timer.C:
			late = true
		case <-ctx.Done():
			return false, fmt.Errorf("partitioner: wait for %s: %w", p.path, context.Cause(ctx))
		}
	}
}

// ReleaseSet gives back the locks of our items and has the set divided again. Call it once
// the work under the allocation's context has returned. It returns when the state is
// ALLOCATING again; at once, when it is so already. In FAILURE, and when that comes first, it
// returns a [*FailedError]. When ctx ends first, the error wraps the cause and it goes on in the
// background. While Run goes on it returns ErrNotStarted.
func (p *SetPartitioner) ReleaseSet(ctx context.Context) error {
	m, err := p.started("release")
	if err != nil {
		return err
	}
	if err := m.release(ctx); err != nil {
		return fmt.Errorf("partitioner: release %s: %w", p.path, err)
	}
	return nil
}

// Finish gives back what we have, leaves the party, and sets the state to FAILURE. Call it
// once the work under the allocation's context has returned. When it returns nil nothing of ours
// stands any more, neither our member nor a contender that waited for its lock, or it went with its
// session. When ctx ends before, the error wraps the cause and it goes on in the background. When the
// session's Run has ended before it could be done, the error wraps ErrUnfinished. What Run does ends
// with its context instead: while it goes on Finish returns ErrNotStarted, and afterwards waits for
// what Run has left to the background.
func (p *SetPartitioner) Finish(ctx context.Context) error {
	m, err := p.started("finish")
	if err != nil {
		return err
	}
	m.stop(ErrFinished)
	select {
	case <-m.done:
		if m.left != nil {
			return fmt.Errorf("partitioner: finish %s: %w", p.path, m.left)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("partitioner: finish %s: %w", p.path, context.Cause(ctx))
	}
}
