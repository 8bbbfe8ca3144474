package consumer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kielgo/kiel/consumer/internal/sessions"
	"github.com/kielgo/kiel/internal/topiclist"
)

// errNotJoined says that the call ended before Setup.
var errNotJoined = errors.New("not joined")

// serve runs one call of Consume or Run as a session on the membership of topics. It returns when ctx, the membership or the
// session ends. After a member has left because it is cut off from Kafka, it joins again, and begins another session. user makes
// the user's part of a session. ctx is derived from caller, the context that the user gave.
func (g *Group) serve(ctx, caller context.Context, topics *topiclist.List, kind sessions.Kind, user func(*membership, *consumeSession) sessionUser) error {
	for {
		m, err := g.rejoin(ctx, func() (*membership, error) { return g.join(ctx, topics, kind) })
		if errors.Is(err, errNotJoined) {
			return nil // ctx has ended
		}
		if err != nil {
			return err
		}
		s := newConsumeSession(ctx, caller, kind)
		s.user = user(m, s)
		if m.driver.begin(s) {
			if err := m.serve(ctx, s); err != nil || ctx.Err() != nil || !m.isCutOff() {
				return err
			}
			g.cutOff.left(m.refusals.began)
			continue
		}
		s.close(nil, true) // the membership has ended meanwhile: join returns why
	}
}

// join returns the membership of topics: the one that waits for this call, or a new one. It returns the error of a membership
// that ended while it waited, and errNotJoined when ctx ends first.
func (g *Group) join(ctx context.Context, topics *topiclist.List, kind sessions.Kind) (*membership, error) {
	if m := g.member(); m != nil {
		if m.ctx.Err() == nil && slices.Equal(m.topics.Entries, topics.Entries) {
			return m, nil
		}
		m.leave(nil) // other topics need another record, and records never change in place
		<-m.done
		g.setMember(nil)
		if m.err != nil {
			return nil, m.err
		}
	}
	if g.brokers.isClosed() {
		return nil, errClientClosed
	}
	if g.awaitAbandoned(ctx); ctx.Err() != nil {
		return nil, errNotJoined
	}
	if g.awaitRefusal(ctx); ctx.Err() != nil {
		return nil, errNotJoined
	}
	m, err := g.newMembership(ctx, topics, kind)
	if g.noteRefusal(err, time.Time{}); err != nil {
		if !errors.Is(err, errNotJoined) && !g.cutOff.waits { // rejoin reports its failures
			g.leftOut(err, time.Time{})
		}
		return nil, err
	}
	g.setMember(m)
	go m.run()
	return m, nil
}

// serve runs the session of a call. When the session alone ends, the member stays and waits for the next call. Otherwise serve
// returns when the member has left.
func (m *membership) serve(ctx context.Context, s *consumeSession) error {
	unhook := m.leaveWith(ctx, s)
	<-s.returned
	setup, failed, cleanup := s.result()
	if unhook() && ctx.Err() == nil && m.ctx.Err() == nil {
		return joined(setup, failed, cleanup)
	}
	m.stopOrderly() // so does leaveWith's function, unless the session has ended with ctx before it began, or before it ran
	<-m.done
	m.group.setMember(nil)
	m.group.setSetupAt(time.Time{})
	return joined(setup, failed, s.late(), m.err, cleanup)
}

// leaveWith makes the member leave when ctx ends, until stop is called. The context of s, which is derived from ctx, ends before
// that, with the cause of ctx. So a handler that finds Messages closed by the end of the call finds the session's context ended.
func (m *membership) leaveWith(ctx context.Context, s *consumeSession) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		<-s.ctx.Done()
		m.driver.stopAsked()
	})
}

// joined is errors.Join, but returns a single error as it is, because programs compare it with their own.
func joined(errs ...error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// watchEnd notes that the member has joined, and makes it leave when its allocator has failed. So the session's context ends at
// once, and does not wait for handlers, which may be waiting for that context.
func (m *membership) watchEnd(ctx context.Context) {
	var failed error
	for snapshot := range m.allocator.Updates(ctx) {
		failed = snapshot.Err
		if snapshot.Joined {
			m.group.joined.Store(true)
		}
	}
	if failed != nil && ctx.Err() == nil {
		m.leave(failed)
	}
}

// watchPlans gives the driver each mapping, from the first on that has the member's topics.
func (m *membership) watchPlans(ctx context.Context) {
	if m.allocator.Ready(ctx) != nil {
		return // watchEnd sees to that
	}
	for snapshot := range m.allocator.Updates(ctx) {
		m.driver.plan(snapshot)
	}
}
