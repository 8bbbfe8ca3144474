package consumer

import (
	"context"
	"fmt"
	"slices"

	"github.com/kielgo/kiel"
)

// seek is a call of MarkOffset or ResetOffset in Setup, before the partition is open.
type seek struct {
	offset int64
	text   string
	reset  bool
}

// seek notes where a partition is to start that is about to be opened. It returns false, and does nothing, for any other, and when Setup
// has returned.
func (s *consumeSession) seek(p kiel.Partition, to seek) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.seeking || !slices.Contains(s.expected, p) {
		return false
	}
	if s.seeks == nil {
		s.seeks = map[kiel.Partition][]seek{}
	}
	s.seeks[p] = append(s.seeks[p], to)
	return true
}

// sought returns where a partition starts by what Setup has marked and reset, and the metadata of that; false when it starts at start.
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

// forgetSeek forgets where a partition was to start: when it is opened again, it starts where it was left.
func (s *consumeSession) forgetSeek(p kiel.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seeks, p)
}

// isPromised returns whether o is of the claim that Setup was told of: the partition has been this member's since then, by the claim or
// by the plan. In between another member may have got it and read on; then what Setup wanted is not about where it left off.
func (o *opening) isPromised() bool {
	plan := o.session.plan
	switch {
	case plan == nil || plan.Incarnation == nil: // there was no other member
		return true
	case plan.Incarnation.SessionID() != o.claim.Incarnation().SessionID():
		return false // the group went on without this member
	case o.claim.Version() <= plan.Version:
		return true
	}
	move, ok := o.member.snapshot().Move(o.tp)
	return ok && move.Version <= plan.Version
}

// seek moves the position to where Setup has put it, and commits that: when the partition is opened again it starts there, too. A
// negative offset stands for the one that Options.From says, as with sarama.
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
		first, err := o.member.edge(ctx, o.tp, o.member.from)
		if err != nil {
			return 0, fmt.Errorf("consumer: start of %s: %w", o.tp, err)
		}
		offset = first
	}
	o.epoch, o.origin = -1, fromSetup
	o.tracker.Move(offset)
	o.tracker.Reset(offset, text)
	if o.isFenced() { // the user commits positions
		return offset, nil
	}
	if err := o.member.committer.Commit(ctx, o.tracker); err != nil {
		return 0, fmt.Errorf("start position: %w", err)
	}
	o.session.forgetSeek(o.tp)
	return offset, nil
}
