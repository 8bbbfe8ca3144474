package partitioner

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
)

const (
	retryPause   = 100 * time.Millisecond
	refusedPause = 5 * time.Second // the longest time between two attempts that the servers refuse

	kindRefused = "refused" // the kind of the errors that are outlasted
)

// machine goes through the four states, once for Start and again and again for Run. All fields but the channels and ctx belong to
// the goroutine in run.
type machine struct {
	p        *SetPartitioner
	ofRun    bool            // whether it is Run's: after some FAILUREs it starts again
	ctx      context.Context //nolint:containedctx // a machine is a lifetime; ends, with the cause, when it stops
	stop     context.CancelCauseFunc
	requests chan chan struct{} // requests to release, or to leave FAILURE; each is closed when that is done
	asked    chan struct{}      // a request that ended in FAILURE and is not done yet, or nil
	joined   chan struct{}      // closed when Start may return
	done     chan struct{}      // closed when no znode is left
	left     error              // why a znode may exist all the same; set before done is closed

	blocker atomic.Pointer[seqnode.Blocker] // the znode that is being given up, for the log of a Start or Run that waits

	refusals pause.Backoff // between attempts that the servers refuse

	party    *party.ShallowParty
	began    bool                  // whether there was a session, so that znodes may have been created
	session  int64                 // id of the ZooKeeper session; an allocation does not outlive it
	held     map[string]*lock.Held // by item
	alloc    *Allocation           // the present allocation, or nil
	unwatch  context.CancelFunc    // ends the monitor of alloc
	monitors sync.WaitGroup        // goroutines that watch the members or the session
}

// begin starts a machine, once the machine before has ended.
func (p *SetPartitioner) begin(ctx context.Context, ofRun bool) (*machine, error) {
	m := &machine{
		p:        p,
		ofRun:    ofRun,
		requests: make(chan chan struct{}),
		joined:   make(chan struct{}),
		done:     make(chan struct{}),
		held:     make(map[string]*lock.Held),
		refusals: pause.Backoff{Growth: pause.Doubling(retryPause, refusedPause)},
	}
	m.ctx, m.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	m.blocker.Store(&seqnode.Blocker{Path: session.Join(p.path, "party")})
	var patience seqnode.Patience
	for {
		last := p.machine.Load()
		if last != nil {
			if last.ctx.Err() == nil {
				return nil, ErrStarted
			}
			err := patience.Wait(ctx, last.done, func(waited time.Duration) {
				p.opts.Logger.WarnContext(ctx, "still waiting", "path", p.path, "waited", waited, "blocker", last.blocker.Load())
			})
			if err != nil {
				return nil, operr.Because(ErrUnfinished, err)
			}
		}
		if p.machine.CompareAndSwap(last, m) {
			break
		}
	}
	if p.State() != Allocating {
		p.publish(Allocating, nil, nil)
	}
	go m.run()
	return m, nil
}

// errOpen is the cause of an ended context with which run asks whether the session is closed.
var errOpen = errors.New("session is not closed")

// run goes through the states until a FAILURE that lasts. It keeps the session open: a program may end the session's Run and this
// one with the same context, and still get to know that no znode is left.
func (m *machine) run() {
	defer close(m.done)
	defer m.p.sess.KeepOpen()()
	for m.ctx.Err() == nil {
		m.live()
	}
	ended, cancel := context.WithCancelCause(context.WithoutCancel(m.ctx))
	cancel(errOpen)
	if _, err := m.p.sess.Incarnation(ended); m.began && err != nil && !errors.Is(err, errOpen) {
		m.left = operr.Because(ErrUnfinished, err) // nobody knows whether the servers have closed the session
	}
}

// live goes through the states until FAILURE, and then gives up all znodes. If the FAILURE need not last live waits until it is
// to start again.
func (m *machine) live() {
	err := m.loop()
	if !m.ofRun || !errors.Is(err, session.ErrSessionExpired) && !errors.Is(err, ErrPartitionTime) {
		m.stop(err)
	}
	if m.ctx.Err() != nil {
		err = context.Cause(m.ctx)
	}
	m.endAllocation(err)
	m.p.publish(Failure, nil, err)
	life := context.WithoutCancel(m.ctx)
	for _, h := range m.held {
		m.gives(h.Node(), "")
	}
	m.giveBack(life)
	if m.party != nil {
		m.gives(m.party.Node(), m.p.opts.Identifier)
		_ = m.party.Leave(life) // does not fail, because life does not end
	}
	for _, l := range m.p.locks {
		m.gives(l.Path(), "")
		_ = l.Settle(life) // waits until a contender that waited for the lock is gone
	}
	m.monitors.Wait()
	asked := m.asked
	if m.asked = nil; asked == nil {
		select {
		case <-m.ctx.Done():
		case asked = <-m.requests:
		}
	}
	if m.ctx.Err() == nil {
		m.p.opts.Logger.InfoContext(m.ctx, "set partitioner starts again", "path", m.p.path, "error", err)
		m.p.publish(Allocating, nil, nil)
		close(asked)
	}
}

// gives stores which znode is being given up.
func (m *machine) gives(path, data string) {
	m.blocker.Store(&seqnode.Blocker{Path: path, Data: []byte(data), Stat: session.Stat{EphemeralOwner: m.session}})
}

func (m *machine) loop() error {
	crowd, err := m.p.newParty()
	if err != nil {
		return err
	}
	if _, err := m.p.sess.Incarnation(m.ctx); err != nil {
		return err
	}
	m.party, m.began = crowd, true
	for {
		err := m.party.Join(m.ctx)
		if err == nil {
			break
		}
		if !m.ofRun || !m.outlasts(m.ctx, err) {
			return err
		}
	}
	m.p.joined.Store(true)
	inc, err := m.p.sess.Incarnation(m.ctx)
	if err != nil {
		return err
	}
	m.session = inc.SessionID()
	err = inc.EnsurePath(m.ctx, session.Join(m.p.path, "locks"))
	lasts := errors.Is(err, session.ErrUncertain) || m.ofRun && m.refused(err) // the locks create the directory if it is missing
	if err != nil && !lasts {
		return err
	}
	if !m.ofRun {
		close(m.joined)
	}
	for {
		if err := m.allocate(); err != nil {
			return err
		}
		if err := m.serve(); err != nil {
			return err
		}
	}
}

// refused reports whether err is a refusal by the servers that this partitioner outlasts, because it has joined before.
func (m *machine) refused(err error) bool {
	return m.p.joined.Load() && hold.Refused(err) && !errors.Is(err, ErrFunction)
}

// outlasts reports whether err is a refusal that may be over at the next attempt. If so, it logs err and waits until it is time
// for that attempt.
func (m *machine) outlasts(ctx context.Context, err error) bool {
	if ctx.Err() != nil || !m.refused(err) {
		return false
	}
	m.p.errs.FailedWarn(kindRefused, "", err)
	_ = pause.Sleep(ctx, pause.Jitter(m.refusals.Next()))
	return true
}

// allocate tries until there is an allocation, or an error that would come again.
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
			m.refusals.Reset()
			m.p.errs.OK(kindRefused, "")
			return nil
		}
		m.giveBack(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrMembersChanged), errors.Is(err, session.ErrTrustLost), errors.Is(err, lock.ErrLost):
		case !hold.Over(err) && (session.Retryable(err) || errors.Is(err, session.ErrUncertain)):
			_ = pause.Sleep(ctx, retryPause)
		case m.outlasts(ctx, err):
		default:
			return err
		}
	}
}

// serve keeps the allocation until it is given back.
func (m *machine) serve() error {
	m.p.publish(Acquired, m.alloc, nil)
	serving, cancel := context.WithCancel(m.ctx)
	defer cancel()
	expired := make(chan error, 1)
	for alloc := m.alloc.ctx.Done(); ; alloc = nil {
		select {
		case <-m.ctx.Done():
			return context.Cause(m.ctx)
		case done := <-m.requests:
			m.endAllocation(ErrReleased)
			m.giveBack(m.ctx)
			if _, err := m.incarnation(m.ctx); err != nil {
				m.asked = done
				return err
			}
			m.p.publish(Allocating, nil, nil)
			close(done)
			return nil
		case <-alloc:
			if m.ctx.Err() != nil {
				return context.Cause(m.ctx)
			}
			if cause := context.Cause(m.alloc.ctx); hold.Over(cause) {
				return cause
			}
			m.p.publish(Release, nil, nil)
			m.monitors.Go(func() { expired <- m.expiry(serving) })
		case err := <-expired:
			return err
		}
	}
}

// incarnation returns the present incarnation of the session in which we are a member.
func (m *machine) incarnation(ctx context.Context) (*session.Incarnation, error) {
	inc, err := m.p.sess.Incarnation(ctx)
	if err == nil && inc.SessionID() != m.session {
		return nil, session.ErrSessionExpired
	}
	return inc, err
}

// expiry waits for the end of the session, across losses of trust, and returns its error.
func (m *machine) expiry(ctx context.Context) error {
	for {
		inc, err := m.incarnation(ctx)
		if err != nil {
			return err
		}
		select {
		case <-inc.Context().Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// release is ReleaseSet, and also leaves a FAILURE that need not last.
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
		}
		select {
		case requests <- done:
			requests = nil
		case <-next:
		case <-done:
			return nil
		case <-m.ctx.Done():
			return m.p.failure("release", context.Cause(m.ctx))
		case <-ctx.Done():
			return operr.New("partitioner", "release", m.p.path, context.Cause(ctx))
		}
	}
}
