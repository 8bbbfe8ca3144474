package partitioner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/latest"
	"github.com/kielgo/kiel/internal/operr"
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
	// Acquired: this member has the items of [SetPartitioner.Allocation].
	Acquired
	// Release: stop working on the items, then call ReleaseSet.
	Release
	// Failure: this member has no item. Call Start to start again.
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

// SetPartitioner is one of the members that divide a set. A process may have several with different identifiers.
type SetPartitioner struct {
	sess  *session.Session
	path  string
	opts  Options
	items []string              // in the order of Options.Order
	locks map[string]*lock.Lock // by item
	room  int                   // how many bytes of the session's budget of ephemeral znodes locks can take

	joined atomic.Bool // whether a machine has joined the party
	errs   *errlog.Log // of what the servers refuse and Run outlasts

	latest  *latest.Value[Snapshot] // without the channel that Snapshot fills in
	machine atomic.Pointer[machine] // of the newest Start or Run

	// Only the machine that runs uses these. They outlive it, so that a Run which often starts again still finds out that a
	// namesake is no dead member's znode.
	namesakes  map[string]time.Time // when another member with our identifier was first seen, by the name of its znode
	reconnects uint64               // how often the session had reconnected when namesakes was last cleared
}

// Snapshot is a state and what belongs to it. It never changes.
type Snapshot struct {
	State State
	ID    uint64          // grows by one with each transition
	Err   error           // the reason of FAILURE
	next  <-chan struct{} // closed at the next transition
	alloc *Allocation
}

// Changed returns a channel that is closed at the next transition. Call Changed before you act on the state, and you miss no
// transition.
func (s *Snapshot) Changed() <-chan struct{} { return s.next }

// Allocation returns this member's allocation in the state ACQUIRED, nil in other states.
func (s *Snapshot) Allocation() *Allocation { return s.alloc }

// New returns one of the members that divide items at path. It checks its arguments and does no I/O; call Start or Run.
// Options.Logger gets a warning if the session's budget of ephemeral znodes is too small for the locks of all items.
func New(s *session.Session, path string, items []string, opts Options) (*SetPartitioner, error) {
	if s == nil {
		return nil, operr.New("partitioner", "", "", errors.New("session is nil"))
	}
	if err := session.CheckPath(path); err != nil {
		return nil, operr.New("partitioner", "", "", err)
	}
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, operr.New("partitioner", "", "", err)
	}
	p := &SetPartitioner{sess: s, path: path, opts: opts, latest: latest.New(&Snapshot{}), locks: make(map[string]*lock.Lock, len(items)), namesakes: make(map[string]time.Time)}
	p.errs = errlog.New(opts.Logger.With("component", "partitioner", "path", path))
	if p.items, err = sorted(items, opts.Order); err != nil {
		return nil, operr.New("partitioner", "", "", err)
	}
	paths, err := lockPaths(session.Join(path, "locks"), items, opts.Escape)
	if err != nil {
		return nil, operr.New("partitioner", "", "", err)
	}
	crowd, err := p.newParty() // checks the identifier
	if err != nil {
		return nil, operr.New("partitioner", "", "", err)
	}
	for _, item := range slices.Sorted(maps.Keys(paths)) {
		if p.locks[item], err = lock.New(s, paths[item], lock.Options{Logger: opts.Logger}); err != nil {
			return nil, operr.New("partitioner", "item", strconv.Quote(item), err)
		}
	}
	p.room = s.EphemeralBudget() - s.EphemeralSize(crowd.Node(), session.Ephemeral)
	if most := p.mostItems(); most < len(p.locks) {
		opts.Logger.Warn("budget of ephemeral znodes is too small for one member to hold all items",
			"path", path, "items", len(p.locks), "most", most, "budget", s.EphemeralBudget())
	}
	return p, nil
}

func (p *SetPartitioner) newParty() (*party.ShallowParty, error) {
	return party.NewShallowParty(p.sess, session.Join(p.path, "party"), party.KazooOptions{Identifier: p.opts.Identifier, Logger: p.opts.Logger})
}

// Identifier returns this member's identifier.
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

// Allocating reports whether the set is being divided: call WaitForAcquire.
func (p *SetPartitioner) Allocating() bool { return p.State() == Allocating }

// Acquired reports whether there are items to work on: see Allocation.
func (p *SetPartitioner) Acquired() bool { return p.State() == Acquired }

// MustRelease reports whether the items must be given back: call ReleaseSet.
func (p *SetPartitioner) MustRelease() bool { return p.State() == Release }

// Failed reports whether the state is FAILURE: see Snapshot().Err.
func (p *SetPartitioner) Failed() bool { return p.State() == Failure }

// Allocation returns our allocation, nil in every state but ACQUIRED. A function under Run calls [Hold] instead.
func (p *SetPartitioner) Allocation() *Allocation { return p.Snapshot().Allocation() }

// Items returns this member's items, none in every state but ACQUIRED.
func (p *SetPartitioner) Items() []string {
	return p.Allocation().Items()
}

// publish stores a new state. Only begin calls publish, and then the goroutine of the machine.
func (p *SetPartitioner) publish(state State, alloc *Allocation, err error) {
	p.latest.Store(&Snapshot{State: state, ID: p.latest.Load().ID + 1, Err: err, alloc: alloc})
	p.opts.Logger.Debug("set partitioner state changed", "path", p.path, "state", state.String(), "error", err)
}

// Start joins the party and divides the set, in the background, until Finish. It returns when the member has joined. When ctx
// ends first, the member leaves in the background and the error wraps the cause. After FAILURE Start may be called again. It
// waits until the znodes of before are gone, and starts again; if ctx ends before that, the error wraps ErrUnfinished, too. A
// join that the servers refuse is an error. What they refuse later is logged and tried again, after pauses that grow to 5 s.
func (p *SetPartitioner) Start(ctx context.Context) error {
	if ctx.Err() != nil {
		return operr.New("partitioner", "start", p.path, context.Cause(ctx))
	}
	m, err := p.begin(ctx, false)
	if err != nil {
		return operr.New("partitioner", "start", p.path, err)
	}
	select {
	case <-m.joined:
		return nil
	case <-m.done:
		return p.failure("start", context.Cause(m.ctx))
	case <-ctx.Done():
		m.stop(context.Cause(ctx))
		return operr.New("partitioner", "start", p.path, context.Cause(ctx))
	}
}

func (p *SetPartitioner) failure(op string, err error) error {
	return operr.New("partitioner", op, p.path, operr.Mark(operr.Because(errFailed, err), &FailedError{Path: p.path, Err: err}))
}

// started returns the machine of Start, or that of a Run that has ended.
func (p *SetPartitioner) started(op string) (*machine, error) {
	m := p.machine.Load()
	if m == nil || m.ofRun && m.ctx.Err() == nil {
		return nil, operr.New("partitioner", op, p.path, ErrNotStarted)
	}
	return m, nil
}

// WaitForAcquire waits while the state is ALLOCATING, for Options.AcquireTimeout at most. True says that it has become ACQUIRED,
// or was that already. False without an error says that the time has passed or that the state is RELEASE, in which WaitForAcquire
// does not wait: look at the state again, as kazoo's loop does.
//
// In FAILURE WaitForAcquire returns a [*FailedError], and before Start or Run was called ErrNotStarted. When ctx ends first the
// error wraps the cause.
func (p *SetPartitioner) WaitForAcquire(ctx context.Context) (acquired bool, err error) {
	timer := time.NewTimer(p.opts.AcquireTimeout)
	defer timer.Stop()
	for late := false; ; {
		now := p.Snapshot()
		switch {
		case now.State == Acquired:
			return true, nil
		case now.State == Failure:
			return false, p.failure("wait for", now.Err)
		case p.machine.Load() == nil:
			return false, operr.New("partitioner", "wait for", p.path, ErrNotStarted)
		case now.State == Release, late && ctx.Err() == nil:
			return false, nil
		}
		select {
		case <-now.next:
		case <-timer.C:
			late = true
		case <-ctx.Done():
			return false, operr.New("partitioner", "wait for", p.path, context.Cause(ctx))
		}
	}
}

// ReleaseSet releases the locks of this member's items, and then the set is divided again. Call ReleaseSet once the work under
// the allocation's context has returned. It returns when the state is ALLOCATING again; at once, when it is so already. In
// FAILURE, and when FAILURE comes first, it returns a [*FailedError]. When ctx ends first, the error wraps the cause and
// ReleaseSet goes on in the background. During Run it returns ErrNotStarted: Run itself releases the items when its function has
// returned.
func (p *SetPartitioner) ReleaseSet(ctx context.Context) error {
	m, err := p.started("release")
	if err != nil {
		return err
	}
	return m.release(ctx)
}

// Finish releases this member's locks, leaves the party, and sets the state to FAILURE. Call Finish once the work under the
// allocation's context has returned. When Finish returns nil none of this member's znodes exists any more, neither the member nor
// a contender that waited for its lock. When ctx ends before, the error wraps the cause and Finish goes on in the background.
// When the session's Run has ended before the znodes were deleted, the error wraps ErrUnfinished. During Run Finish returns
// ErrNotStarted: end Run's context instead. After a Run Finish waits until the znodes that Run has left to the background are
// deleted.
func (p *SetPartitioner) Finish(ctx context.Context) error {
	m, err := p.started("finish")
	if err != nil {
		return err
	}
	m.stop(ErrFinished)
	select {
	case <-m.done:
		if m.left != nil {
			return operr.New("partitioner", "finish", p.path, m.left)
		}
		return nil
	case <-ctx.Done():
		return operr.New("partitioner", "finish", p.path, context.Cause(ctx))
	}
}
