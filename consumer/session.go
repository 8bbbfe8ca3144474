package consumer

import (
	"context"
	"slices"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/consumer/internal/offsets"
)

// groupSession is the sarama.ConsumerGroupSession of one Consume call, and calls its handler.
type groupSession struct {
	session    *consumeSession
	handler    sarama.ConsumerGroupHandler
	member     string
	committer  *offsets.Committer
	generation func() int32

	channelSize int // of what Messages of a claim returns
}

var _ sessionUser = (*groupSession)(nil)

func (s *groupSession) setup() error   { return s.handler.Setup(s) }
func (s *groupSession) cleanup() error { return s.handler.Cleanup(s) }

// consume calls ConsumeClaim with a claim, while a goroutine moves messages into its channel.
func (s *groupSession) consume(owned context.Context, p *Partition) error {
	c := newClaim(p, s.channelSize)
	returned, fed := make(chan struct{}), make(chan struct{})
	go func() { // ends with p
		defer close(fed)
		c.feed(owned, returned)
	}()
	defer func() {
		p.end(errHandlerReturned)
		close(returned)
		<-fed
	}()
	return s.handler.ConsumeClaim(s, c)
}

var _ sarama.ConsumerGroupSession = (*groupSession)(nil)

// Claims returns the partitions that are open; before Setup has returned, those
// that are about to be. The map is the caller's.
func (s *groupSession) Claims() map[string][]int32 { return s.session.partitions() }

// MemberID returns the member's name.
func (s *groupSession) MemberID() string { return s.member }

// GenerationID returns the version of the newest mapping, which grows.
func (s *groupSession) GenerationID() int32 { return s.generation() }

// find returns the tracker of a partition that is open in this call, or nil.
func (s *groupSession) find(topic string, partition int32) *offsets.Tracker {
	if s.session.isOver() {
		return nil
	}
	return s.committer.Find(topic, partition)
}

// MarkOffset marks offset, the one of the next message to read. Lower ones than
// marked before, those of a partition that is not open, and those that come after
// the Consume call are ignored.
func (s *groupSession) MarkOffset(topic string, partition int32, offset int64, metadata string) {
	if t := s.find(topic, partition); t != nil {
		t.Mark(offset, metadata)
	}
}

// ResetOffset is MarkOffset for a lower offset, and ignores higher ones.
func (s *groupSession) ResetOffset(topic string, partition int32, offset int64, metadata string) {
	if t := s.find(topic, partition); t != nil {
		t.Reset(offset, metadata)
	}
}

// MarkMessage marks a message as consumed.
func (s *groupSession) MarkMessage(m *sarama.ConsumerMessage, metadata string) {
	s.MarkOffset(m.Topic, m.Partition, m.Offset+1, metadata)
}

// Commit commits what is marked in one request and returns when it is answered;
// failures go to Errors.
func (s *groupSession) Commit() {
	_ = s.committer.Commit(context.WithoutCancel(s.session.ctx), nil) // ends with the committer; reported there
}

// Context ends when this member begins to leave, or the call to end.
func (s *groupSession) Context() context.Context { return s.session.ctx }

// byTopic returns the ids of partitions by topic, sorted.
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
