package consumer

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/internal/pause"
)

// MaxMetadata is how many characters the metadata of a mark may have, so that Kafka stores them: a broker takes 4,096 in all,
// unless its offset.metadata.max.bytes says otherwise, and this package needs the rest for its own. Kafka counts UTF-16 code
// units, of which a text has no more than bytes. Longer metadata are sent until a broker refuses some. For 10 minutes from then
// on marks are stored without metadata that are longer: the offset counts, and an [ErrMetadataLost] is reported.
const MaxMetadata = offsets.MaxText

// MetadataText returns the text of a mark from the metadata that Kafka stores with an offset, for programs that read them by an
// OffsetManager, an admin client or a tool of Kafka:
//
//	offset, metadata := partitionOffsetManager.NextOffset()
//	text := consumer.MetadataText(metadata)
//
// For an offset that a member has stored it is the text that was given to the mark, without what the package has put before it;
// "" if none was given or it was too long ([ErrMetadataLost]). Metadata of any other form, as other programs and sarama store
// them, are the text as they are. MetadataText trusts nothing: it takes any text, allocates no copy, and takes time in proportion
// to its length. For the start position of an open partition see [Partition.InitialMetadata].
func MetadataText(metadata string) string { return offsets.TextOf(metadata) }

// groupSession is the Session of one Consume call, which Setup and Cleanup are given. It calls the call's handler.
type groupSession struct {
	session   *consumeSession
	ctx       context.Context //nolint:containedctx // the session's, with the groupSession as a value for SessionOf
	handler   sarama.ConsumerGroupHandler
	member    string
	committer *offsets.Committer
	version   func() uint64
	countLate func(p kiel.Partition, offset int64) // counts a mark that has no effect, because p is not open
	left      func() error                         // returns why the membership has ended; nil while it lasts
	ended     func(p *Partition)                   // says that Messages of p is about to be closed, in an eager session
	store     func()                               // stores what Setup of an eager session has set

	channelSize int // the capacity of each claim's channel of messages

	recent [64]atomic.Pointer[offsets.Tracker] // of partitions that were marked, by id; some may be closed
}

var _ sessionUser = (*groupSession)(nil)

// newGroupSession returns the Session of a call of Consume with handler.
func (m *membership) newGroupSession(s *consumeSession, handler sarama.ConsumerGroupHandler) *groupSession {
	out := &groupSession{
		session: s, handler: handler, member: m.group.Member(), committer: m.committer, version: m.version, countLate: m.lateMark, left: m.whyLeft,
		channelSize: m.group.settings.config.ChannelBufferSize,
	}
	out.ended, out.store = func(p *Partition) { m.driver.readingEnded(p.id) }, func() { m.storeSeeks(s) }
	out.ctx = context.WithValue(s.ctx, sessionKey{}, out)
	return out
}

func (s *groupSession) setup() error   { return s.handler.Setup(s) }
func (s *groupSession) cleanup() error { return s.handler.Cleanup(s) }

// failure returns nil: Consume does not return the error of a ConsumeClaim.
func (s *groupSession) failure(kiel.Partition, error) error { return nil }

// consume calls ConsumeClaim with a session of its own and a claim, while a goroutine moves messages into the claim's channel. An
// error that says only that the session's context has ended is no error.
func (s *groupSession) consume(owned context.Context, p *Partition) error {
	own, end := s.of(p)
	defer end()
	c := newClaimChannel(p, s.channelSize)
	returned, fed := make(chan struct{}), make(chan struct{})
	go func() { // ends with p
		defer close(fed)
		c.feed(owned, returned, end)
	}()
	defer func() {
		p.handlerReturned(owned)
		close(returned)
		<-fed
	}()
	err := s.handler.ConsumeClaim(own, c)
	if pause.OnlyEnd(own.Context(), err) {
		return nil
	}
	return err
}

// claimSession is the Session that one ConsumeClaim is given: that of the call, with a Context that also ends when p's context
// does. Marks, commits, tokens and trust depend on the claim alone, so they outlast that Context while the handler finishes.
type claimSession struct {
	*groupSession
	ctx context.Context //nolint:containedctx // has the claimSession as a value for SessionOf
}

// of returns the Session for p's ConsumeClaim: in an eager session that of the call, as with sarama, which ends as a whole. end
// is called when p's context has ended, before Messages is closed: it ends the session's context, with the cause of that in a
// session of p's own. It may be called more than once.
func (s *groupSession) of(p *Partition) (_ Session, end func()) {
	if s.session.kind.Eager {
		return s, func() { s.ended(p) }
	}
	ctx, cancel := context.WithCancelCause(s.ctx)
	out := &claimSession{groupSession: s}
	out.ctx = context.WithValue(ctx, sessionKey{}, out)
	return out, func() {
		cause := context.Cause(p.ctx)
		if why := s.left(); why != nil { // the partitions are revoked for that reason
			cause = why
		}
		cancel(cause)
	}
}

// Context ends when the partition is revoked or lost, when it can't be read any more, and when Context of the call's session
// does.
func (s *claimSession) Context() context.Context { return s.ctx }

var (
	_ Session = (*groupSession)(nil)
	_ Session = (*claimSession)(nil)
)

// Claims returns what was held when Setup was called, in an eager session. In an incremental one it returns the open partitions;
// before Setup has returned those that are about to be opened, and after the end of the session those that were open at the end.
// The map is the caller's.
func (s *groupSession) Claims() map[string][]int32 { return s.session.partitions() }

// MemberID returns "": Kafka knows no member of this group.
func (s *groupSession) MemberID() string { return "" }

// GenerationID returns -1, as MemberID returns "".
func (s *groupSession) GenerationID() int32 { return sarama.GroupGenerationUndefined }

// Member returns the member's name.
func (s *groupSession) Member() string { return s.member }

// Version returns the version of the newest mapping.
func (s *groupSession) Version() uint64 { return s.version() }

// Token returns the fencing token of a partition, 0 if it is not open.
func (s *groupSession) Token(topic string, partition int32) int64 {
	if p := s.session.find(topic, partition); p != nil {
		return p.Token()
	}
	return 0
}

// Trusted reports whether a partition is open and its claim is trusted at this moment.
func (s *groupSession) Trusted(topic string, partition int32) bool {
	p := s.session.find(topic, partition)
	return p != nil && p.Trusted()
}

// find returns the tracker of an open partition, or nil, also when the session is over.
func (s *groupSession) find(topic string, partition int32) *offsets.Tracker {
	if s.session.isOver() {
		return nil
	}
	return s.committer.Find(topic, partition)
}

// mark marks an offset, and returns false if that has no effect. It looks for the tracker only if that of the last mark with such
// an id does not take the mark.
func (s *groupSession) mark(topic string, partition int32, offset int64, metadata string) bool {
	slot := &s.recent[uint32(partition)%uint32(len(s.recent))]
	if t := slot.Load(); t != nil && t.IsOf(topic, partition) && !s.session.isOver() && t.Mark(offset, metadata) {
		return true
	}
	t := s.find(topic, partition)
	if t == nil {
		return false
	}
	slot.Store(t)
	return t.Mark(offset, metadata)
}

// MarkOffset marks offset, which is that of the next message to read. It ignores an offset lower than the marked one, an offset
// of a partition that is not open, and all offsets after the Consume call; the latter two are counted. In Setup it sets where one
// of Claims starts, if offset is higher than the committed one, and if no other member gets that partition before. metadata that
// are longer than Kafka takes ([MaxMetadata]) are dropped; the offset counts.
func (s *groupSession) MarkOffset(topic string, partition int32, offset int64, metadata string) {
	if !s.mark(topic, partition, offset, metadata) {
		s.seek(kiel.Partition{Topic: topic, ID: partition}, seek{offset: offset, text: metadata})
	}
}

// ResetOffset is MarkOffset for a lower offset, and ignores a higher one. In Setup a negative offset, such as
// sarama.OffsetOldest, makes the partition start where a new group would.
func (s *groupSession) ResetOffset(topic string, partition int32, offset int64, metadata string) {
	if t := s.find(topic, partition); t == nil || !t.Reset(offset, metadata) {
		s.seek(kiel.Partition{Topic: topic, ID: partition}, seek{offset: offset, text: metadata, reset: true})
	}
}

// seek stores a mark or reset of Setup. Outside of Setup it counts it as late.
func (s *groupSession) seek(p kiel.Partition, to seek) {
	if !s.session.seek(p, to) {
		s.countLate(p, to.offset)
	}
}

// MarkMessage marks a message as consumed.
func (s *groupSession) MarkMessage(m *sarama.ConsumerMessage, metadata string) {
	s.MarkOffset(m.Topic, m.Partition, m.Offset+1, metadata)
}

// Commit commits all marks in one request and returns when the request is answered. Failures go to Errors. In Setup of an eager
// session it stores the marks and resets made so far, which waits for transactions of former owners (KIP-447); with Options.Fence
// it stores nothing there.
func (s *groupSession) Commit() {
	s.session.askSeeks()
	if s.session.kind.Eager && s.session.inSetup() {
		s.store()
		return
	}
	_ = s.committer.Commit(context.WithoutCancel(s.session.ctx), nil) // returns when the committer ends, which reports the errors
}

// Context ends when this member begins to leave, or when the call begins to end. It is the Context of Setup and Cleanup.
func (s *groupSession) Context() context.Context { return s.ctx }

// byTopic returns the ids of partitions by topic, sorted.
func byTopic(ps []kiel.Partition) map[string][]int32 {
	out := map[string][]int32{}
	for _, p := range ps {
		out[p.Topic] = append(out[p.Topic], p.ID)
	}
	for _, ids := range out {
		slices.Sort(ids)
	}
	return out
}
