package consumer

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/consumer/internal/offsets"
)

// groupSession is the sarama.ConsumerGroupSession of one Consume call.
type groupSession struct {
	ctx        context.Context //nolint:containedctx // the session's lifetime, handed out by Context
	member     string
	committer  *offsets.Committer
	generation func() int32

	mu     sync.Mutex
	claims map[string][]int32 // replaced, never changed
	open   map[allocfn.Partition]*claim
}

var _ sarama.ConsumerGroupSession = (*groupSession)(nil)

// Claims returns the partitions that are open; before Setup has returned, those
// that are about to be. The map is the caller's.
func (s *groupSession) Claims() map[string][]int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string][]int32, len(s.claims))
	for topic, ids := range s.claims {
		out[topic] = slices.Clone(ids)
	}
	return out
}

// MemberID returns the member's name.
func (s *groupSession) MemberID() string { return s.member }

// GenerationID returns the version of the newest mapping, which grows.
func (s *groupSession) GenerationID() int32 { return s.generation() }

// MarkOffset marks offset, the one of the next message to read. Lower ones than
// marked before, and those of a partition that is not open, are ignored.
func (s *groupSession) MarkOffset(topic string, partition int32, offset int64, metadata string) {
	if t := s.committer.Find(topic, partition); t != nil {
		t.Mark(offset, metadata)
	}
	s.hint(topic, partition)
}

// hint says that the handler of a partition has done with a message: most come
// for the next one then.
func (s *groupSession) hint(topic string, partition int32) {
	if c := s.claim(allocfn.Partition{Topic: topic, ID: partition}); c != nil {
		c.hint()
	}
}

// ResetOffset is MarkOffset for a lower offset, and ignores higher ones.
func (s *groupSession) ResetOffset(topic string, partition int32, offset int64, metadata string) {
	if t := s.committer.Find(topic, partition); t != nil {
		t.Reset(offset, metadata)
	}
	s.hint(topic, partition)
}

// MarkMessage marks a message as consumed.
func (s *groupSession) MarkMessage(m *sarama.ConsumerMessage, metadata string) {
	s.MarkOffset(m.Topic, m.Partition, m.Offset+1, metadata)
}

// Commit commits what is marked in one request and returns when it is answered;
// failures go to Errors.
func (s *groupSession) Commit() {
	_ = s.committer.Commit(context.WithoutCancel(s.ctx), nil) // ends with the committer; reported there
	s.each(func(_ allocfn.Partition, c *claim) { c.hint() })
}

// Context ends when this member begins to leave.
func (s *groupSession) Context() context.Context { return s.ctx }

func (s *groupSession) opened(p allocfn.Partition, c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[p] = c
	s.recount()
}

func (s *groupSession) closed(p allocfn.Partition, c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[p] == c {
		delete(s.open, p)
		s.recount()
	}
}

// claim returns the claim of an open partition, or nil.
func (s *groupSession) claim(p allocfn.Partition) *claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[p]
}

func (s *groupSession) recount() {
	ps := slices.Collect(maps.Keys(s.open))
	s.claims = byTopic(ps)
}

// expect says which partitions are about to be opened.
func (s *groupSession) expect(ps []allocfn.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims = byTopic(ps)
}

// each calls f for the open claims.
func (s *groupSession) each(f func(allocfn.Partition, *claim)) {
	s.mu.Lock()
	open := maps.Clone(s.open)
	s.mu.Unlock()
	for p, c := range open {
		f(p, c)
	}
}

func byTopic(ps []allocfn.Partition) map[string][]int32 {
	out := map[string][]int32{}
	for _, p := range ps {
		out[p.Topic] = append(out[p.Topic], p.ID)
	}
	for _, ids := range out {
		slices.Sort(ids)
	}
	return out
}
