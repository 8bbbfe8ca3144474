package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/offsets"
)

// A partition whose handler has returned because the session ends is held, where its claim stands, until Cleanup has returned: it is not
// read, and what Cleanup, or work that Cleanup waits for, marks and commits is stored under the claim. A partition that is revoked for
// another member is not held, so that it need not wait for the slowest handler. When the member leaves all are revoked; then they are
// held only if the program alone commits, which else could commit nothing in Cleanup.

// mayHold returns whether the partition, whose handler has returned, is to be held until Cleanup has returned.
func (o *opening) mayHold() bool {
	s := o.session
	return s.endsAlone() || s.heldLeaving && (s.ending() || o.member.ctx.Err() != nil)
}

// hold commits what was marked, if that is done without being asked for, and holds the partition.
func (o *opening) hold() {
	o.held = true
	o.lastCommit(o.member.committer.Store)
}

// lastCommit logs the failure of a commit that is the last one unless there are later marks.
func (o *opening) lastCommit(commit func(context.Context, *offsets.Tracker) error) {
	ctx := o.claim.Context()
	if err := commit(ctx, o.tracker); err != nil && !errors.Is(err, offsets.ErrLost) && !o.member.isMissing(ctx, o.tp.Topic, err) {
		o.member.group.log.FailedWarn(kindCommit, o.tp.String(), fmt.Errorf("last commit of the partition: %w", err))
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
		o.lastCommit(o.member.committer.Settle)
	}
	return err
}

// awaitCleanup waits until Cleanup has returned. When the partition is revoked meanwhile that wait ends, or when the member leaves
// after a part of the time in which it is to have left: handlers that don't return must not keep the partitions of the others.
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

// release lets go of the partitions that s has held until now: Cleanup has returned, if it was called. It waits until they are
// committed, or the member has left.
func (m *membership) release(s *consumeSession) {
	s.setCleaned()
	select {
	case <-s.holding.Ended():
	case <-m.closed:
	}
}

// endsAlone returns whether a handler has ended the session, or it closes its partitions for another reason, while the member stays.
func (s *consumeSession) endsAlone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exited || s.closing.Err() != nil
}

// setCleaned notes that Cleanup has returned. What comes later of the handlers has no effect.
func (s *consumeSession) setCleaned() {
	s.over.Store(true)
	s.cleanOnce.Do(func() { close(s.cleaned) })
}

// isClosed returns whether the partitions are closed, or held, although the member leaves.
func (s *consumeSession) isClosed() bool {
	select {
	case <-s.openings.Ended():
		return s.heldLeaving
	default:
		return false
	}
}
