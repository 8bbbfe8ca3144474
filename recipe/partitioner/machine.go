package partitioner

import (
	"context"
	"errors"
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
