package consumer

import (
	"context"
	"errors"

	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/reporting"
)

// A partition is held when its handler has returned because the session ends, and its claim is kept: the partition is not read,
// but its tracker stays open until Cleanup has returned. So marks and commits of Cleanup, or of work that Cleanup waits for, are
// stored. A partition that is revoked for another member is not held, because that member must not wait for the slowest handler.
// When the member leaves, all partitions are revoked. They are then held only if the program alone commits, because it could not
// commit in Cleanup otherwise.

// mayHold returns whether the partition is to be held until Cleanup has returned. Its handler has returned.
func (o *opening) mayHold() bool {
	s := o.session
	return s.endsAlone() || s.heldLeaving && (s.ending() || o.member.ctx.Err() != nil)
}

// hold holds the partition, and commits its marks if AutoCommit is on.
func (o *opening) hold() {
	o.held = true
	o.lastCommit(o.member.committer.Store)
}

// lastCommit calls commit for the partition's tracker, and logs its failure. A member that is cut off from Kafka commits nothing, nor
// does one whose brokers are another cluster's.
func (o *opening) lastCommit(commit func(context.Context, *offsets.Tracker) error) {
	if o.member.isCutOff() || o.member.isElsewhere() {
		o.abandon()
		return
	}
	ctx := o.claim.Context()
	if err := commit(ctx, o.tracker); err != nil && !errors.Is(err, offsets.ErrLost) && !o.member.catalog.Explains(ctx, o.tp.Topic, err) {
		o.member.group.log.FailedWarn(reporting.KindCommit, o.tp.String(), err)
	}
}

// under consumes the partition under one session. ctx ends when the partition is revoked or lost.
func (o *opening) under(ctx context.Context, s *consumeSession) error {
	o.session, o.held = s, false
	s.holding.Begin()
	defer s.holding.End()
	err := o.repeat(ctx)
	o.enter(atSession)
	s.openings.End()
	if o.held {
		o.awaitCleanup(ctx)
		o.lastCommit(o.member.committer.CommitLast)
	}
	return err
}

// awaitCleanup waits until Cleanup has returned, or the partition is revoked. When the member leaves, it waits for half of
// StopTimeout or of RebalanceTimeout at most, whichever is shorter: a handler that does not return must not keep the partitions
// of the other handlers.
func (o *opening) awaitCleanup(ctx context.Context) {
	s, m := o.session, o.member
	if kafkaconn.Await(ctx, s.cleaned) || !s.heldLeaving || m.ctx.Err() == nil {
		return
	}
	limit := min(m.group.settings.StopTimeout, m.group.settings.RebalanceTimeout) / 2
	ctx, cancel := context.WithTimeout(o.claim.Context(), limit)
	defer cancel()
	kafkaconn.Await(ctx, s.cleaned)
}

// release releases the partitions that s holds. Cleanup has returned, or was not called. It waits until the partitions are
// committed, or the member has left.
func (m *membership) release(s *consumeSession) {
	s.setCleaned()
	select {
	case <-s.holding.Ended():
	case <-m.closed:
	}
}

// endsAlone returns whether the session ends while the member stays: a handler has ended it, or its partitions are being closed.
func (s *consumeSession) endsAlone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exited || s.closing.Err() != nil
}

// setCleaned stores that Cleanup has returned. Later calls of the handlers have no effect.
func (s *consumeSession) setCleaned() {
	s.over.Store(true)
	s.cleanOnce.Do(func() { close(s.cleaned) })
}

// isClosed returns whether all partitions are closed or held while the member leaves.
func (s *consumeSession) isClosed() bool {
	select {
	case <-s.openings.Ended():
		return s.heldLeaving
	default:
		return false
	}
}
