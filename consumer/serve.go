package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/internal/topiclist"
	"github.com/kielgo/kiel/internal/usercall"
	"github.com/kielgo/kiel/ownership"
)

// errNotJoined says that the call ended before Setup.
var errNotJoined = errors.New("not joined")

// serve runs one call of Consume or Run as a session on the membership of topics. It returns when ctx, the membership or the
// session ends. After a member has left because it is cut off from Kafka, it joins again, and begins another session. user makes
// the user's part of a session. ctx is derived from caller, the context that the user gave.
func (g *Group) serve(ctx, caller context.Context, topics *topiclist.List, user func(*membership, *consumeSession) sessionUser) error {
	for {
		m, err := g.rejoin(ctx, func() (*membership, error) { return g.join(ctx, topics) })
		if errors.Is(err, errNotJoined) {
			return nil // ctx has ended
		}
		if err != nil {
			return err
		}
		s := newConsumeSession(ctx, caller)
		s.user = user(m, s)
		if m.begin(s) {
			if err := m.serve(ctx, s); err != nil || ctx.Err() != nil || !m.isCutOff() {
				return err
			}
			g.cutOff.left(m.refusals.began)
			continue
		}
		s.finish() // the membership has ended meanwhile: join returns why
	}
}

// join returns the membership of topics: the one that waits for this call, or a new one. It returns the error of a membership
// that ended while it waited, and errNotJoined when ctx ends first.
func (g *Group) join(ctx context.Context, topics *topiclist.List) (*membership, error) {
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
	if g.awaitRefusal(ctx); ctx.Err() != nil {
		return nil, errNotJoined
	}
	m, err := g.newMembership(ctx, topics)
	if g.noteRefusal(err, time.Time{}); err != nil {
		return nil, err
	}
	g.setMember(m)
	go m.run()
	return m, nil
}

// serve runs a session: Setup, partitions, Cleanup. When the session alone ends, the member stays and waits for the next one.
// Otherwise serve returns when the member has left.
func (m *membership) serve(ctx context.Context, s *consumeSession) error {
	unhook := m.leaveWith(ctx, s)
	unhookMember := context.AfterFunc(m.ctx, func() { s.stop(m.whyEnded()) })
	defer unhookMember()

	setup := m.setup(s)
	switch {
	case setup == nil:
		m.setOpening(s)
		<-s.ctx.Done()
	case !setupReturned(setup):
		m.leave(nil) // a Setup that was abandoned or not called ends the membership
	}
	stuck := m.closePartitions(ctx, s)
	cleanup := m.cleanup(s, setup)
	m.release(s)
	m.detach(s)
	if !setupReturned(setup) {
		setup = nil // the membership's error says why
	}
	if unhook() && m.ctx.Err() == nil {
		return joined(setup, s.failed(), cleanup)
	}
	m.leave(nil) // leaveWith's function, which has begun, does the same at this moment
	<-m.done
	m.group.setMember(nil)
	m.group.setupAfter = time.Time{}
	return joined(setup, s.failed(), stuck, m.err, cleanup)
}

// leaveWith makes the member leave when ctx ends, until stop is called. The context of s, which is derived from ctx, ends before
// that, with the cause of ctx. So a handler that finds Messages closed by the end of the call finds the session's context ended.
func (m *membership) leaveWith(ctx context.Context, s *consumeSession) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		<-s.ctx.Done()
		m.leave(nil)
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

// whyEnded returns the cause of the session's context when the membership has ended: sarama's error for a lost membership, with
// the reason, or context.Canceled when the member leaves because it was asked to.
func (m *membership) whyEnded() error {
	cause := context.Cause(m.ctx)
	if errors.Is(cause, context.Canceled) {
		return cause
	}
	return operr.Because(sarama.ErrSessionHeartbeatFailed, cause)
}

// whyLeft returns whyEnded when the membership has ended, else nil.
func (m *membership) whyLeft() error {
	if m.ctx.Err() == nil {
		return nil
	}
	return m.whyEnded()
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

// setupReturned returns whether Setup was called and has returned. err is the error of setup.
func setupReturned(err error) bool {
	return !errors.Is(err, errNotJoined) && !errors.Is(err, usercall.ErrNotStarted) && !errors.Is(err, errAbandoned)
}

// setup calls Setup when this member has joined, and sessionPause after the beginning of the last session at the earliest.
func (m *membership) setup(s *consumeSession) error {
	if pause.Sleep(s.ctx, time.Until(m.group.setupAfter)) != nil || m.allocator.Ready(s.ctx) != nil {
		return errNotJoined // the membership's error says why
	}
	m.group.setupAfter = time.Now().Add(sessionPause)
	s.nextAt = m.group.setupAfter
	plan := m.allocator.Snapshot()
	s.expect(m.mine(plan), plan)
	err := m.users.callBounded(m.late, callSetup, s.user.setup)
	s.setupEnded(err)
	return err
}

// mine returns the partitions that this member owns, and those that plan gives it and that it accepts. plan may be nil.
func (m *membership) mine(plan *allocator.Snapshot) []kiel.Partition {
	var planned []kiel.Partition
	if plan != nil {
		planned = slices.DeleteFunc(plan.Mine(), func(p kiel.Partition) bool { return m.accept(p) != nil })
	}
	return withHeld(planned, m.owner.Owned())
}

// withHeld returns the planned partitions, and the held ones that are not being revoked. A held partition may be missing in the
// plan, because the plan has not reached the owner yet, or because the member was not in the group for a moment. It is opened all
// the same.
func withHeld(planned []kiel.Partition, held []ownership.Info) []kiel.Partition {
	ps := map[kiel.Partition]bool{}
	for _, p := range planned {
		ps[p] = true
	}
	for _, c := range held {
		if !c.Revoking {
			ps[kiel.Partition{Topic: c.Topic, ID: c.Partition}] = true
		}
	}
	return slices.Collect(maps.Keys(ps))
}

// closePartitions waits until the partitions of s are closed. When the member leaves, their claims are released, too. When the
// session alone ends, a ConsumeClaim that does not return makes the member leave, so that others get its partition; the error
// names the partition.
func (m *membership) closePartitions(ctx context.Context, s *consumeSession) (err error) {
	if ctx.Err() == nil && m.ctx.Err() == nil {
		s.close(nil)
		m.setOpening(nil)
		if err = m.awaitClosed(s); err != nil {
			m.leave(err)
		}
	}
	if ctx.Err() != nil || m.ctx.Err() != nil {
		m.awaitLeft(s)
	}
	return err
}

// awaitLeft waits until the partitions of s are closed, or held for Cleanup. The member is leaving.
func (m *membership) awaitLeft(s *consumeSession) {
	if s.heldLeaving {
		m.setOpening(nil) // no partition is opened from now on
		select {
		case <-s.openings.Ended():
		case <-m.closed:
		}
		return
	}
	<-m.closed
	m.setOpening(nil)
}

// closingTimeout is how long a partition may take to close after its ConsumeClaim has returned: the Observer and the last commit
// have offsets.LastCommitTimeout each.
const closingTimeout = 2 * offsets.LastCommitTimeout

// awaitClosed waits until the partitions of s, which has ended, are closed, or the member leaves. It returns an error that names
// the handlers that have not returned in time, or says that partitions were not closed.
func (m *membership) awaitClosed(s *consumeSession) error {
	began, closed := time.Now(), s.openings.Ended()
	for _, limit := range []time.Duration{m.group.settings.RebalanceTimeout, closingTimeout} {
		overdue, cancel := context.WithTimeout(m.ctx, limit)
		over := kafkaconn.Await(overdue, closed) || !errors.Is(overdue.Err(), context.DeadlineExceeded)
		cancel()
		if over {
			return nil
		}
		if err := m.stuckSince(began); err != nil {
			return err
		}
	}
	return stuck("partitions were not closed %v after the end of their session", time.Since(began))
}

// stuckSince returns a StuckError for each partition whose ConsumeClaim or Fence still runs, although it was asked to return at
// the time ended. The time since then counts when the member leaves.
func (m *membership) stuckSince(ended time.Time) error {
	var errs []error
	for _, o := range m.openings.list() {
		if !o.inUser.Load() {
			continue
		}
		e := &ownership.StuckError{Partition: o.tp, For: time.Since(ended)}
		if o.at() == atFence { // the error's own text is of handlers
			text := fmt.Errorf("%s of %s has not returned for %v after the end of its session", callFence, o.tp, e.For)
			errs = append(errs, failure("", "", operr.Mark(text, e)))
		} else {
			errs = append(errs, e)
		}
	}
	return errors.Join(errs...)
}

// cleanup calls Cleanup if Setup has returned and no ConsumeClaim runs.
func (m *membership) cleanup(s *consumeSession, setup error) error {
	if !setupReturned(setup) {
		return nil
	}
	if m.ctx.Err() != nil && !s.isClosed() {
		<-m.closed
		if _, runs := errors.AsType[*ownership.StuckError](m.owned); runs {
			return nil
		}
	}
	err := m.users.callBounded(m.late, callCleanup, s.user.cleanup)
	if errors.Is(err, errAbandoned) {
		return nil // the membership's error names Cleanup
	}
	if !s.isEnd(err) {
		m.report.Failed(reporting.KindCleanup, "", err)
	}
	return err // as sarama does, also when err is the error of the ended context
}
