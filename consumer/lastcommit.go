package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/ownership"
)

// When a ConsumeClaim has returned, the tracker of its partition stays open until the driver orders the last commit: marks and
// commits until then, of Cleanup or of work for which Cleanup waits, are stored. An incremental session gives that order at once
// for a partition that is revoked for another member, because that member must not wait for the slowest handler; an eager one
// from half of its time on.

// commit stores the last marks: those made since the partition was opened, or those of Setup and Cleanup if it was not.
func (o *opening) commit(s *consumeSession) {
	s.settle(o.tp)
	if !o.member.group.settings.autoCommit {
		s.dropSeeks(o.tp)
	}
	switch {
	case o.last != nil:
		o.commitLast(o.last)
		o.last = nil
	case s.kind.Eager && s.hasSeeks(o.tp) && !o.isFenced():
		ctx, cancel := context.WithTimeoutCause(o.claim.Context(), offsets.LastCommitTimeout, offsets.ErrLate)
		defer cancel()
		o.storeUnder(ctx, s)
	}
	o.enter(atSession)
}

// store stores where Setup has set the partition to start.
func (o *opening) store(ctx context.Context, s *consumeSession) {
	ctx, stop := s.within(ctx)
	defer stop()
	o.storeUnder(ctx, s)
	o.enter(atSession)
}

// storeUnder finds the partition's position, and closes it there: position commits what Setup has set.
func (o *opening) storeUnder(ctx context.Context, s *consumeSession) {
	o.session = s
	if _, err := o.position(ctx, false); err != nil {
		if o.worthReporting(ctx, err) {
			o.member.report.FailedOf(o.tp, reporting.KindCommit, err)
		}
		return // position has closed the tracker
	}
	o.member.committer.Close(o.claim.Context(), o.tracker)
}

// commitLast stores the marks of a partition whose handler has returned, and closes its tracker.
func (o *opening) commitLast(p *Partition) {
	o.awaitNotified(p.notifying.Load()) // the observer is notified in the order of events
	o.storeMarks(o.member.committer.CommitLast)
}

// storeMarks calls commit for the partition's tracker, and logs its failure. A member that is cut off from Kafka commits nothing,
// nor does one whose brokers are another cluster's.
func (o *opening) storeMarks(commit func(context.Context, *offsets.Tracker) error) {
	if o.member.isCutOff() || o.member.isElsewhere() {
		o.abandon()
		return
	}
	ctx := o.claim.Context()
	if err := commit(ctx, o.tracker); err != nil && !errors.Is(err, offsets.ErrLost) && !o.member.catalog.Explains(ctx, o.tp.Topic, err) {
		o.member.group.log.FailedWarn(reporting.KindCommit, o.tp.String(), err)
	}
}

// kept returns the partitions that this member is to keep: those of the newest plan, or none when it leaves. It does not block.
func (m *membership) kept() map[kiel.Partition]bool {
	s := m.snapshot()
	if s == nil || m.ctx.Err() != nil {
		return nil
	}
	kept := map[kiel.Partition]bool{}
	for _, p := range s.Mine() {
		kept[p] = true
	}
	return kept
}

// stuckSince returns a StuckError for the partition, whose ConsumeClaim or Fence still runs although it was asked to return at
// the time ended. The time since then counts when the member leaves.
func (o *opening) stuckSince(ended time.Time) error {
	e := &ownership.StuckError{Partition: o.tp, For: time.Since(ended)}
	switch {
	case !o.inUser.Load():
		return stuck("%s was not closed %v after the end of its session", o.tp, e.For)
	case o.at() == atFence: // the error's own text is of handlers
		text := fmt.Errorf("%s of %s has not returned for %v after the end of its session", callFence, o.tp, e.For)
		return failure("", "", operr.Mark(text, e))
	default:
		return e
	}
}

// inHandler reports whether a ConsumeClaim runs. If it does when the member has left, ownership's error names it. Of Fence that
// error says that it is a handler.
func (o *opening) inHandler() bool { return o.inUser.Load() && o.at() != atFence }
