package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/ownership"
)

// errNotJoined says that the end came before Setup.
var errNotJoined = errors.New("consumer: not joined")

// serve is a call that consumes: user's code is called as a session on the membership of topics, until ctx ends, the membership
// does, or the session alone.
func (g *Group) serve(ctx context.Context, topics []string, user func(*membership, *consumeSession) sessionUser) error {
	for {
		m, err := g.join(ctx, topics)
		if errors.Is(err, errNotJoined) {
			return nil // ctx has ended
		}
		if err != nil {
			return err
		}
		s := newConsumeSession(ctx)
		s.user = user(m, s)
		if m.begin(s) {
			return m.serve(ctx, s)
		}
		s.finish() // the member has ended meanwhile: join says why
	}
}

// join returns the membership of topics: the one that waits for this call, or a new one. It returns the error of one that ended
// while it waited, and errNotJoined when ctx ends before.
func (g *Group) join(ctx context.Context, topics []string) (*membership, error) {
	if m := g.member(); m != nil {
		if m.ctx.Err() == nil && slices.Equal(m.topics, topics) {
			return m, nil
		}
		m.leave(nil) // other topics are another record
		<-m.done
		g.setMember(nil)
		if m.err != nil {
			return nil, m.err
		}
	}
	if ctx.Err() != nil {
		return nil, errNotJoined
	}
	m, err := g.newMembership(ctx, topics)
	if err != nil {
		return nil, err
	}
	g.setMember(m)
	go m.run()
	return m, nil
}

// serve is the life of a session: Setup, partitions, Cleanup. When the session alone ends the member stays, and waits for the
// next one; else it returns when the member has left.
func (m *membership) serve(ctx context.Context, s *consumeSession) error {
	unhook := context.AfterFunc(ctx, func() { m.leave(nil) })
	unhookMember := context.AfterFunc(m.ctx, s.stop)
	defer unhookMember()

	setup := m.setup(s)
	switch {
	case setup == nil:
		m.setOpening(s)
		<-s.ctx.Done()
	case !setupReturned(setup):
		m.leave(nil) // the membership ends, if it has not yet
	}
	stuck := m.closePartitions(ctx, s)
	cleanup := m.cleanup(s, setup)
	m.detach(s)
	if !setupReturned(setup) {
		setup = nil // the membership's error says why
	}
	if unhook() && m.ctx.Err() == nil {
		return errors.Join(setup, s.failed(), cleanup)
	}
	m.leave(nil) // what ended ctx does that at this moment
	<-m.done
	m.group.setMember(nil)
	return errors.Join(setup, s.failed(), stuck, m.err, cleanup)
}

// setupReturned returns whether Setup was called and has returned, by the error of setup.
func setupReturned(err error) bool {
	return !errors.Is(err, errNotJoined) && !errors.Is(err, errNotStarted) && !errors.Is(err, errAbandoned)
}

// setup waits until this member has joined, and calls Setup.
func (m *membership) setup(s *consumeSession) error {
	if err := m.allocator.Ready(s.ctx); err != nil {
		return errNotJoined // the membership's error says why
	}
	if snapshot := m.allocator.Snapshot(); snapshot != nil {
		s.expect(slices.DeleteFunc(snapshot.Mine(), func(p allocfn.Partition) bool { return m.accept(p) != nil }))
	}
	defer s.expect(nil)
	return m.users.callBounded(m.late, callSetup, s.user.setup)
}

// closePartitions waits until the partitions of s are closed: with the claims when the member leaves, else alone. A
// ConsumeClaim that does not return when the session alone ends makes the member leave, so that others get the partition, and
// is the error.
func (m *membership) closePartitions(ctx context.Context, s *consumeSession) (err error) {
	if ctx.Err() == nil && m.ctx.Err() == nil {
		s.end(errSessionOver)
		m.setOpening(nil)
		limit := m.group.settings.RebalanceTimeout + 2*offsets.SettleTimeout // the observer and the last commit have a time of their own
		overdue, cancel := context.WithTimeout(m.ctx, limit)
		defer cancel()
		if !kafkaconn.Await(overdue, s.openings.Ended()) && m.ctx.Err() == nil {
			err = fmt.Errorf("consumer: %w: a ConsumeClaim has not returned for %v after the end of its session", ownership.ErrStuck, limit)
			m.leave(err)
		}
	}
	if ctx.Err() != nil || m.ctx.Err() != nil {
		<-m.closed
		m.setOpening(nil)
	}
	return err
}

// cleanup calls Cleanup if Setup has returned and no ConsumeClaim runs.
func (m *membership) cleanup(s *consumeSession, setup error) error {
	if !setupReturned(setup) {
		return nil
	}
	if m.ctx.Err() != nil {
		<-m.closed
		if _, runs := errors.AsType[*ownership.StuckError](m.owned); runs {
			return nil
		}
	}
	err := m.users.callBounded(m.late, callCleanup, s.user.cleanup)
	if errors.Is(err, errAbandoned) {
		return nil // the membership's error says so
	}
	if err != nil {
		m.group.report(err)
	}
	return err
}
