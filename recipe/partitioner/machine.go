package partitioner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

const retryPause = 100 * time.Millisecond

// machine is one life of the four states, from Start to FAILURE. All but its channels and
// ctx belongs to the goroutine in run.
type machine struct {
	p        *SetPartitioner
	party    *party.ShallowParty
	ctx      context.Context //nolint:containedctx // a machine is a lifetime; ends when it is to stop
	stop     context.CancelCauseFunc
	requests chan chan struct{} // of ReleaseSet; closed when it is done
	joined   chan struct{}
	done     chan struct{}
	err      error // why it ended; to be read when done is closed

	session  int64 // id of the ZooKeeper session, which it does not outlive
	held     map[string]*lock.Held
	alloc    *Allocation
	unwatch  context.CancelFunc // ends the monitor of alloc
	monitors sync.WaitGroup
}

func newMachine(ctx context.Context, p *SetPartitioner) (*machine, error) {
	crowd, err := p.newParty()
	if err != nil {
		return nil, err
	}
	m := &machine{
		p:        p,
		party:    crowd,
		requests: make(chan chan struct{}),
		joined:   make(chan struct{}),
		done:     make(chan struct{}),
		held:     make(map[string]*lock.Held),
	}
	m.ctx, m.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	if p.State() != Allocating {
		p.publish(Allocating, nil, nil)
	}
	return m, nil
}

// run goes through the states until FAILURE, and then leaves nothing behind.
func (m *machine) run() {
	m.err = m.loop()
	if m.ctx.Err() != nil {
		m.err = context.Cause(m.ctx)
	}
	m.endAllocation(m.err)
	m.p.publish(Failure, nil, m.err)
	life := context.WithoutCancel(m.ctx)
	m.giveBack(life)
	_ = m.party.Leave(life) // life does not end, so it does not fail
	m.monitors.Wait()
	m.stop(nil)
}

func (m *machine) loop() error {
	if err := m.party.Join(m.ctx); err != nil {
		return err
	}
	inc, err := m.p.sess.Incarnation(m.ctx)
	if err != nil {
		return err
	}
	m.session = inc.SessionID()
	if err := inc.EnsurePath(m.ctx, session.Join(m.p.path, "locks")); err != nil && !errors.Is(err, session.ErrUncertain) {
		return err // the locks make it anyhow, should it be missing
	}
	close(m.joined)
	for {
		if err := m.allocate(); err != nil {
			return err
		}
		if err := m.serve(); err != nil {
			return err
		}
	}
}

// allocate tries until there is an allocation, or no use in trying.
func (m *machine) allocate() error {
	ctx := m.ctx
	if limit := m.p.opts.MaxPartitionTime; limit > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, limit, ErrPartitionTime)
		defer cancel()
		ctx = limited
	}
	for {
		err := m.try(ctx)
		if err == nil {
			return nil
		}
		m.giveBack(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrMembersChanged), errors.Is(err, session.ErrTrustLost), errors.Is(err, lock.ErrLost):
		case !over(err) && (session.Retryable(err) || errors.Is(err, session.ErrUncertain)):
			pause(ctx, retryPause)
		default:
			return err
		}
	}
}

// serve keeps an allocation until it is given back.
func (m *machine) serve() error {
	m.p.publish(Acquired, m.alloc, nil)
	for alloc := m.alloc.ctx.Done(); ; alloc = nil {
		select {
		case <-m.ctx.Done():
			return context.Cause(m.ctx)
		case done := <-m.requests:
			m.endAllocation(ErrReleased)
			m.giveBack(m.ctx)
			m.p.publish(Allocating, nil, nil)
			close(done)
			return nil
		case <-alloc:
			if m.ctx.Err() != nil {
				return context.Cause(m.ctx)
			}
			if cause := context.Cause(m.alloc.ctx); over(cause) {
				return cause
			}
			m.p.publish(Release, nil, nil)
		}
	}
}

// release is ReleaseSet.
func (m *machine) release(ctx context.Context) error {
	done, requests := make(chan struct{}), m.requests
	for {
		now := m.p.Snapshot()
		next := now.next
		switch {
		case requests == nil:
			next = nil
		case now.State == Allocating:
			return nil
		case now.State == Failure:
			return &FailedError{Path: m.p.path, Err: now.Err}
		}
		select {
		case requests <- done:
			requests = nil
		case <-next:
		case <-done:
			return nil
		case <-m.done:
			return &FailedError{Path: m.p.path, Err: m.err}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// endAllocation ends what was handed out. Its locks stay.
func (m *machine) endAllocation(cause error) {
	if m.alloc != nil {
		m.alloc.end(cause)
		m.unwatch()
		m.alloc = nil
	}
}

// giveBack releases all locks, and waits until they are gone or ctx ends.
func (m *machine) giveBack(ctx context.Context) {
	m.endAllocation(ErrReleased)
	var (
		waiting sync.WaitGroup
		mu      sync.Mutex
		left    = make(map[string]*lock.Held)
	)
	for item, h := range m.held {
		waiting.Go(func() {
			if h.Release(ctx) != nil { // it goes on in the background
				mu.Lock()
				defer mu.Unlock()
				left[item] = h
			}
		})
	}
	waiting.Wait()
	m.held = left
}

// view is the party as it was when it had been quiet.
type view struct {
	inc      *session.Incarnation
	children []string
	stat     session.Stat
	watch    *session.Watch
}

// same reports whether no member came or went between two readings.
func same(a, b session.Stat) bool { return a.Czxid == b.Czxid && a.Pzxid == b.Pzxid }

// look reads the party.
func (m *machine) look(ctx context.Context, inc *session.Incarnation) (view, error) {
	dir := session.Join(m.p.path, "party")
	for {
		children, stat, watch, err := inc.ChildrenW(ctx, dir)
		if errors.Is(err, session.ErrNoNode) {
			err = inc.EnsurePath(ctx, dir)
			if err == nil || errors.Is(err, session.ErrUncertain) && ctx.Err() == nil {
				continue
			}
		}
		return view{inc: inc, children: children, stat: stat, watch: watch}, err
	}
}

// quiet waits until the party has not changed for the time boundary.
func (m *machine) quiet(ctx context.Context) (view, error) {
	for {
		inc, err := m.p.sess.Incarnation(ctx)
		if err != nil {
			return view{}, err
		}
		if inc.SessionID() != m.session {
			return view{}, session.ErrSessionExpired
		}
		v, err := m.look(ctx, inc)
		if err != nil {
			return view{}, err
		}
		calm, err := m.calm(ctx, &v)
		if calm && inc.Trusted() {
			return v, nil
		}
		v.watch.Stop()
		if err != nil {
			return view{}, err
		}
	}
}

// calm waits for the time boundary, and reports whether v did not change. Hints that
// nothing comes of do not count.
func (m *machine) calm(ctx context.Context, v *view) (bool, error) {
	timer := time.NewTimer(m.p.opts.TimeBoundary)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return true, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-v.watch.C():
		}
		if v.inc.Context().Err() != nil {
			return false, nil
		}
		now, err := m.look(ctx, v.inc)
		if err != nil {
			return false, err
		}
		v.watch.Stop()
		if v.watch = now.watch; !same(now.stat, v.stat) {
			return false, nil
		}
	}
}

// try divides the set once. When it returns an error, some locks may be held.
func (m *machine) try(ctx context.Context) error {
	v, err := m.quiet(ctx)
	if err != nil {
		return err
	}
	share, deadline, err := m.share(ctx, v)
	if err != nil {
		v.watch.Stop()
		return err
	}
	// What has to stay as it is. It lasts longer than the try.
	stable, change := context.WithCancelCause(m.ctx)
	hurry, calm := context.WithCancel(stable)
	m.monitors.Go(func() { change(m.monitor(stable, hurry.Done(), v, deadline)) })
	err = m.lockAll(ctx, stable, share)
	if err != nil {
		change(err)
		calm()
		return err
	}
	calm()
	a := &Allocation{items: share, held: make(map[string]*lock.Held, len(share))}
	a.ctx, a.end = context.WithCancelCause(stable)
	for _, item := range share {
		h := m.held[item]
		a.held[item] = h
		context.AfterFunc(h.Context(), func() { a.end(context.Cause(h.Context())) })
	}
	m.alloc, m.unwatch = a, func() { change(ErrReleased) }
	return nil
}

// lockAll acquires the locks of the share one after the other.
func (m *machine) lockAll(ctx, stable context.Context, share []string) error {
	both, cancel := context.WithCancelCause(stable)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	for _, item := range share {
		h, err := m.p.locks[item].Acquire(both)
		if err == nil {
			m.held[item] = h
		}
		if both.Err() != nil {
			return context.Cause(both)
		}
		if err != nil {
			return err
		}
	}
	for _, h := range m.held {
		if h.Context().Err() != nil {
			return context.Cause(h.Context())
		}
		if h.Incarnation().SessionID() != m.session {
			return session.ErrSessionExpired
		}
	}
	return nil
}

// monitor returns when the members have changed, at the deadline if that is not zero, when
// the incarnation ends, and when ctx does. Until waiting is closed it looks once per
// reaction time; the watch tells otherwise.
func (m *machine) monitor(ctx context.Context, acquired <-chan struct{}, v view, deadline time.Time) error {
	ticker := time.NewTicker(m.p.opts.MaxReactionTime)
	defer ticker.Stop()
	defer func() { v.watch.Stop() }()
	var due <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		due = timer.C
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-v.inc.Context().Done():
			return context.Cause(v.inc.Context())
		case <-due:
			return fmt.Errorf("%w: another with our identifier stays", ErrMembersChanged)
		case <-acquired:
			acquired = nil
			ticker.Stop()
			continue
		case <-ticker.C:
		case <-v.watch.C():
		}
		now, err := m.look(ctx, v.inc)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case v.inc.Context().Err() != nil:
			return context.Cause(v.inc.Context())
		case err != nil:
			return err
		}
		v.watch.Stop()
		if v.watch = now.watch; !same(now.stat, v.stat) {
			return ErrMembersChanged
		}
	}
}

// share returns the items that are ours, and until when that may stand should another member
// have our identifier.
func (m *machine) share(ctx context.Context, v view) (share []string, deadline time.Time, err error) {
	deadline, err = m.double(ctx, v)
	if err != nil {
		return nil, deadline, err
	}
	var members []string
	for _, name := range v.children {
		members = append(members, party.ShallowIdentifier(name))
	}
	slices.Sort(members)
	share, err = m.pick(members)
	if err != nil {
		return nil, deadline, fmt.Errorf("%w: %w", ErrFunction, err)
	}
	seen := make(map[string]bool, len(share))
	for _, item := range share {
		if m.p.locks[item] == nil {
			return nil, deadline, fmt.Errorf("%w: %q is not in the set", ErrFunction, item)
		}
		if seen[item] {
			return nil, deadline, fmt.Errorf("%w: %q twice", ErrFunction, item)
		}
		seen[item] = true
	}
	return share, deadline, nil
}

// pick calls the partition function.
func (m *machine) pick(members []string) (share []string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	share, err = m.p.opts.Func(m.p.opts.Identifier, members, slices.Clone(m.p.items))
	return slices.Clone(share), err
}

// double looks whether we are in the party, and alone under our identifier. Another may be
// what is left of one that died, us before a restart for instance, and goes within its
// session's timeout and a tick of the servers, which we take for a third of ours. If it does
// not, whoever came later has to go. Double returns when that will be known, zero if nothing
// is to come.
func (m *machine) double(ctx context.Context, v view) (time.Time, error) {
	own := session.Join(m.p.path, "party") + "/"
	here := false
	var others []string
	for _, name := range v.children {
		switch {
		case own+name == m.party.Node():
			here = true
		case party.ShallowIdentifier(name) == m.p.opts.Identifier:
			others = append(others, name)
		}
	}
	if !here {
		// The party is about to make our znode again.
		select {
		case <-v.watch.C():
		case <-ctx.Done():
		}
		return time.Time{}, ErrMembersChanged
	}
	if n := m.p.sess.Stats().Reconnects; n != m.p.reconnects || len(others) == 0 {
		// It may be due to a new leader, who gives all sessions their time again.
		clear(m.p.doubles)
		m.p.reconnects = n
	}
	var deadline time.Time
	for _, name := range others {
		later, err := m.later(ctx, v.inc, own+name)
		if err != nil {
			return time.Time{}, err
		}
		if !later {
			continue
		}
		if m.p.doubles[name].IsZero() {
			m.p.doubles[name] = time.Now()
		}
		due := m.p.doubles[name].Add(v.inc.Timeout() + v.inc.Timeout()/3 + 500*time.Millisecond)
		if !time.Now().Before(due) {
			return time.Time{}, fmt.Errorf("%w: %q, in %s", ErrDuplicate, m.p.opts.Identifier, own+name)
		}
		if deadline.IsZero() || due.Before(deadline) {
			deadline = due
		}
	}
	return deadline, nil
}

// later reports whether our znode was made after the one at path.
func (m *machine) later(ctx context.Context, inc *session.Incarnation, path string) (bool, error) {
	exists, own, err := inc.Exists(ctx, m.party.Node())
	if err != nil {
		return false, err
	}
	if !exists {
		return false, ErrMembersChanged
	}
	exists, other, err := inc.Exists(ctx, path)
	return exists && other.Czxid < own.Czxid, err
}

// over reports whether err says that the ZooKeeper session has ended, and with it all that
// we had.
func over(err error) bool {
	return errors.Is(err, session.ErrSessionExpired) || errors.Is(err, session.ErrClosed)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
