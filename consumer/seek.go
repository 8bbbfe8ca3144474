package consumer

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/reporting"
)

// seek is a call of MarkOffset or ResetOffset in Setup, before the partition is open.
type seek struct {
	offset int64
	text   string // the metadata that the user gave
	reset  bool   // the call was ResetOffset
	asked  bool   // Commit was called after it: without AutoCommit only that stores it while the partition is not open
}

// seek stores where an expected partition is to start. It returns false, and does nothing, for any other partition, and when
// Setup has returned; but after the end of an eager session it stores what Cleanup marks of a partition that was not opened.
func (s *consumeSession) seek(p kiel.Partition, to seek) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	unopened := s.kind.Eager && s.ctx.Err() != nil && !s.settled[p]
	if s.isOver() || !s.seeking && !unopened || !slices.Contains(s.claims, p) {
		return false
	}
	if s.seeks == nil {
		s.seeks = map[kiel.Partition][]seek{}
	}
	s.seeks[p] = append(s.seeks[p], to)
	return true
}

// sought returns where a partition starts after the marks and resets of Setup, and the metadata with them. moved is false when it
// starts at start.
func (s *consumeSession) sought(p kiel.Partition, start int64) (offset int64, text string, moved bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	offset = start
	for _, to := range s.seeks[p] {
		if to.reset && to.offset <= offset || !to.reset && to.offset > offset {
			offset, text, moved = to.offset, to.text, true
		}
	}
	return offset, text, moved
}

// settle ends the time in which marks of a partition are seeks.
func (s *consumeSession) settle(p kiel.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settled == nil {
		s.settled = map[kiel.Partition]bool{}
	}
	s.settled[p] = true
}

// forgetSeek drops the seeks of a partition: when it is opened again, it starts at its own position.
func (s *consumeSession) forgetSeek(p kiel.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seeks, p)
}

// askSeeks notes that the user has called Commit for the marks and resets made so far.
func (s *consumeSession) askSeeks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seeks := range s.seeks {
		for i := range seeks {
			seeks[i].asked = true
		}
	}
}

// dropSeeks drops the marks and resets of a partition after which the user has not called Commit.
func (s *consumeSession) dropSeeks(p kiel.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if kept := slices.DeleteFunc(s.seeks[p], func(to seek) bool { return !to.asked }); len(kept) > 0 {
		s.seeks[p] = kept
	} else {
		delete(s.seeks, p)
	}
}

// isPromised reports whether the partition has been this member's since Setup, by the claim or by the plan. If another member has
// got it in between and has read on, the seeks of Setup do not apply.
func (o *opening) isPromised() bool {
	plan := o.session.plan
	switch {
	case o.session.kind.Eager: // it has been held since Setup
		return true
	case plan == nil || plan.Incarnation == nil: // Setup saw no plan of a group
		return true
	case plan.Incarnation.SessionID() != o.claim.Incarnation().SessionID():
		return false // this member has left the group and joined again
	case o.claim.Version() <= plan.Version:
		return true
	}
	move, ok := o.member.snapshot().Move(o.tp)
	return ok && move.Version <= plan.Version
}

// seek moves the position to where Setup has set it, and commits the new position, so that a second opening starts there, too. A
// negative offset stands for the one at which a new group would start, as with sarama.
func (o *opening) seek(ctx context.Context, start int64) (int64, error) {
	offset, text, moved := o.session.sought(o.tp, start)
	switch {
	case !moved:
		return start, nil
	case !o.isPromised():
		o.session.forgetSeek(o.tp)
		o.member.lateMark(o.tp, offset)
		return start, nil
	}
	if offset < 0 {
		first, err := o.member.byPolicy(ctx, o.tp)
		if err != nil {
			return 0, failure("find the start position of", o.tp.String(), err)
		}
		offset = first
	}
	o.leaderEpoch, o.origin = -1, reporting.FromSetup
	o.tracker.Move(offset)
	o.tracker.Reset(offset, text)
	if o.isFenced() { // the user commits positions
		return offset, nil
	}
	if err := o.member.committer.Commit(ctx, o.tracker); err != nil {
		return 0, notCommitted(o.tp, err)
	}
	o.session.forgetSeek(o.tp)
	return offset, nil
}

// hasSeeks reports whether Setup has set where a partition starts, and it was not opened since.
func (s *consumeSession) hasSeeks(p kiel.Partition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seeks[p]) > 0
}

// soughtAll returns the partitions for which Setup has set where they start.
func (s *consumeSession) soughtAll() []kiel.Partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.seeks))
}

// storeSeeks stores where an eager session's Setup has set partitions to start, and returns when that is stored, or the session
// ends. With Fence it does nothing: what an owner stores before Fence may be overwritten.
func (m *membership) storeSeeks(s *consumeSession) {
	if m.group.settings.Fence != nil {
		return
	}
	var stores sync.WaitGroup
	for _, p := range s.soughtAll() {
		if o := m.driver.runner(p); o != nil {
			stores.Go(func() {
				done := make(chan struct{})
				select {
				case o.stores <- storing{s, done}:
					<-done
				case <-o.gone:
				case <-s.ctx.Done():
				}
			})
		}
	}
	stores.Wait()
}
