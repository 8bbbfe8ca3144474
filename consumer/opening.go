package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/consumer/internal/fetch"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/internal/sabotage"
	"github.com/kielgo/kiel/ownership"
)

// Waits between attempts to open a partition, and between openings of a
// partition whose stream ends by itself.
const (
	openBackoff    = 100 * time.Millisecond
	maxOpenBackoff = 5 * time.Second
)

// errHandlerReturned ends the context of a handler that has returned by itself.
var errHandlerReturned = errors.New("consumer: the handler has returned")

// errReported is returned to ownership for what was reported here already.
var errReported = errors.New("reported")

// own consumes a partition for as long as it is owned, under one session after the
// other: ownership calls it, and releases the claim after it has returned. ctx ends
// when the partition is revoked or lost.
func (m *membership) own(ctx context.Context, h holder) error {
	o := opening{member: m, claim: h, tp: allocfn.Partition{Topic: h.Topic(), ID: h.Partition()}}
	o.prevTopicID, o.prevPartitions = m.catalog.id(o.tp.Topic), m.catalog.count(o.tp.Topic) // the topic may be missing now
	for s := range m.sessions(ctx) {
		o.session = s
		if err := o.repeat(ctx); err != nil {
			return err
		}
	}
	return nil
}

// repeat opens the partition again and again until ctx ends or the session closes its
// partitions. Only what a handler returned by itself ends it before, with errReported.
func (o *opening) repeat(ctx context.Context) error {
	ctx, stop := o.session.within(ctx)
	defer stop()
	wait := kafkaconn.NewBackoff(openBackoff, maxOpenBackoff)
	for ctx.Err() == nil {
		began := time.Now()
		err := o.run(ctx)
		errors.As(err, &o.cut)
		switch {
		case ctx.Err() != nil: // err tells the same
		case errors.Is(err, ErrHandler) && o.session.ctx.Err() != nil:
			o.handlerEnded(ctx, err)
			return nil
		case errors.Is(err, ErrHandler):
			return o.handlerFailed(err)
		case o.worthReporting(ctx, err):
			o.member.report(err, o.tp)
		}
		if time.Since(began) > time.Minute {
			wait.Reset()
		}
		_ = wait.Wait(ctx)
	}
	return nil
}

// worthReporting returns whether a failure is to be reported. What comes next reports the others.
func (o *opening) worthReporting(ctx context.Context, err error) bool {
	switch {
	case err == nil, errors.Is(err, offsets.ErrLost), errors.Is(err, ownership.ErrLost), errors.Is(err, ErrRecreated), errors.Is(err, ErrTopicMissing):
		return false
	case o.member.isMissing(ctx, o.tp.Topic, err):
		return false
	case errors.Is(err, sarama.ErrUnknownTopicOrPartition): // the topic has no such partition: once is enough
		first := !o.unknown
		o.unknown = true
		return first
	default:
		return true
	}
}

// handlerFailed does with the error of a handler what the options say.
func (o *opening) handlerFailed(err error) error {
	if o.member.group.settings.AfterHandlerError != EndRun {
		o.member.report(err, o.tp)
		return errReported
	}
	o.session.fail(&sarama.ConsumerError{Topic: o.tp.Topic, Partition: o.tp.ID, Err: err})
	return nil
}

// handlerEnded does with the error of a handler that returned because its session ends what is
// done when the partition was revoked first, which it waits for.
func (o *opening) handlerEnded(ctx context.Context, err error) {
	if err != ErrHandler && !errors.Is(err, o.session.ctx.Err()) { //nolint:errorlint // alone it says that there was none
		o.member.report(err, o.tp)
	}
	<-ctx.Done() // the member leaves
}

// opening is one stretch of a partition from its start position to its last commit.
type opening struct {
	member  *membership
	claim   holder
	session *consumeSession
	tp      allocfn.Partition

	// The topic's id, and how many partitions it had, when a start position was committed last, or else when the partition was
	// claimed; zero when not known.
	prevTopicID    sarama.Uuid
	prevPartitions int32

	topicID sarama.Uuid           // the topic's id now
	cut     *fetch.TruncatedError // how the log was truncated, until it is read from there; nil if it was not
	tracker *offsets.Tracker
	unknown bool  // it was reported that Kafka does not have the partition, and it was not opened since
	epoch   int32 // the leader epoch of the record batch before the start position; -1 when it is not known
}

// run returns when the partition is closed again: because ctx ended, and then it
// returns anything; or with the reason.
func (o *opening) run(ctx context.Context) error {
	start, err := o.position(ctx)
	if err != nil {
		return err
	}
	s, start, err := o.openSource(ctx, start)
	if err != nil {
		o.member.committer.Close(o.claim.Context(), o.tracker)
		return err
	}
	o.cut, o.unknown = nil, false
	return o.consume(ctx, s, start)
}

// position finds out where to start, opens the tracker there, and commits it: the
// policy's choice must not be made twice, and the commit of an owner before us
// may come late.
func (o *opening) position(ctx context.Context) (int64, error) {
	if err := o.describe(ctx); err != nil {
		return 0, err
	}
	o.topicID = o.member.catalog.id(o.tp.Topic)
	found, err := o.member.reader.Get(ctx, o.tp)
	if err != nil {
		return 0, err
	}
	start, text, reason := found.Offset, found.Text, ""
	from := o.member.from
	switch {
	case start >= 0 && !offsets.SameTopic(found.TopicID, o.topicID), start < 0 && !offsets.SameTopic(o.prevTopicID, o.topicID):
		reason, from = reasonRecreated, Earliest // the policy was for the start of the old one
	case start < 0:
		reason = reasonNone
	}
	first, isNew, err := o.firstPartitions(ctx, found, reason)
	if err != nil {
		return 0, err
	}
	if isNew {
		from = Earliest // the group had started before there was this partition
	}
	o.epoch = -1
	if found.Ours && reason == "" { // others may store any number
		o.epoch = found.LeaderEpoch
	}
	if reason != "" {
		text = ""
		if start, err = o.member.edge(ctx, o.tp, from); err != nil {
			return 0, fmt.Errorf("consumer: start of %s: %w", o.tp, err)
		}
	}
	o.tracker = o.member.committer.Open(o.tp, o.claim, o.topicID, start, text)
	o.tracker.SetFirstPartitions(first)
	o.tracker.SetStartEpoch(o.epoch)
	if err := o.first(ctx, reason); err != nil {
		o.member.committer.Close(o.claim.Context(), o.tracker)
		return 0, err
	}
	o.prevTopicID, o.prevPartitions = o.topicID, o.member.catalog.count(o.tp.Topic)
	return start, nil
}

// describe asks Kafka for the topic, not long after the last time, and returns ErrTopicMissing if Kafka does not have it. All
// partitions of a missing topic wait together, so they ask less often.
func (o *opening) describe(ctx context.Context) error {
	age := time.Second
	if o.member.catalog.isMissing(o.tp.Topic) {
		age = maxOpenBackoff
	}
	if err := o.member.catalog.refresh(ctx, age); err != nil {
		o.member.log.WarnContext(ctx, "topics not described", "error", err) // what is known is good enough
	}
	if o.member.catalog.isMissing(o.tp.Topic) {
		return fmt.Errorf("%w: %s", ErrTopicMissing, o.tp.Topic)
	}
	return nil
}

// firstPartitions returns how many partitions the topic had when the group first started on it: as
// what is stored says, and as many as there are now if nothing says so. Of a topic that was created again
// it returns no more than the old one had, so that those it has more are new. isNew says whether this
// partition was not among them. Only one without an offset may be new, and only when the policy is
// Latest it matters: then what is stored for the others is read.
func (o *opening) firstPartitions(ctx context.Context, found offsets.Stored, reason string) (first int32, isNew bool, err error) {
	ids := o.member.catalog.partitions()[o.tp.Topic]
	now := int32(len(ids)) //nolint:gosec // partitions have numbers of 32 bits
	switch {
	case reason == "":
		return cmp.Or(found.FirstPartitions, now), false, nil
	case reason == reasonRecreated:
		return min(now, cmp.Or(found.FirstPartitions, o.prevPartitions, now)), false, nil
	case reason != reasonNone || o.member.from != Latest:
		return now, false, nil
	}
	all := make([]allocfn.Partition, len(ids))
	for i, id := range ids {
		all[i] = allocfn.Partition{Topic: o.tp.Topic, ID: id}
	}
	first, err = o.member.reader.FirstPartitions(ctx, all, o.topicID)
	if first == 0 {
		return now, false, err
	}
	return first, o.tp.ID >= first, err
}

// first commits the position that the partition starts at.
func (o *opening) first(ctx context.Context, reason string) error {
	if err := o.member.committer.Commit(ctx, o.tracker); err != nil {
		return fmt.Errorf("start position: %w", err)
	}
	if reason != "" {
		o.member.metrics.resets.WithLabelValues(o.tp.Topic, reason).Inc()
	}
	if reason == reasonRecreated {
		o.member.report(fmt.Errorf("%w: its offsets do not count, starting at the first message", offsets.Recreated(o.tp.Topic)), o.tp)
	}
	return nil
}

// openSource opens the source at start. If Kafka does not have start it opens where
// the policy says, and if the log was truncated below start, where it was.
func (o *opening) openSource(ctx context.Context, start int64) (source, int64, error) {
	if o.cut != nil && o.cut.Diverges < start {
		return o.openElsewhere(ctx, start, o.cut.Diverges, reasonTruncated, o.cut)
	}
	s, err := o.member.fetcher.open(ctx, o.tp, start, o.epoch)
	if !errors.Is(err, sarama.ErrOffsetOutOfRange) {
		return s, start, err
	}
	why := err
	oldest, err := o.member.edge(ctx, o.tp, Earliest)
	if err != nil {
		return nil, 0, err
	}
	next := oldest
	if start > oldest && o.member.from == Latest {
		if next, err = o.member.edge(ctx, o.tp, Latest); err != nil {
			return nil, 0, err
		}
	}
	return o.openElsewhere(ctx, start, next, reasonOutOfRange, why)
}

// openElsewhere opens the source at next because of why, and reports that, if the
// configuration allows it.
func (o *opening) openElsewhere(ctx context.Context, start, next int64, reason string, why error) (source, int64, error) {
	if !o.member.resetInvalid {
		return nil, 0, fmt.Errorf("%w: %d: %w", ErrOffsetReset, start, why)
	}
	o.member.report(fmt.Errorf("%w: %d, continuing at %d: %w", ErrOffsetReset, start, next, why), o.tp)
	o.tracker.Move(next)
	if err := o.first(ctx, reason); err != nil {
		return nil, 0, err
	}
	s, err := o.member.fetcher.open(ctx, o.tp, next, -1)
	return s, next, err
}

// consume runs the handler on an open source and commits what it marked.
func (o *opening) consume(ctx context.Context, s source, start int64) error {
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	o.member.background.Start(func() {
		<-work.Done()
		s.Close()
	})
	opened := o.member.notifyAsync(Event{
		Kind: Opened, Topic: o.tp.Topic, Partition: o.tp.ID, Token: o.claim.Token(), Version: o.claim.Version(), Offset: start,
	}, nil)
	if !kafkaconn.Await(ctx, opened.returned()) {
		stop(nil)
		o.awaitNotified(opened)
		o.member.committer.Close(o.claim.Context(), o.tracker)
		return context.Cause(ctx)
	}
	p := o.newPartition(work, stop, s, start)
	o.session.opened(p)
	o.member.openPartitions.add(o, stop)
	o.member.pauses.opened(o.tp, s)
	err := o.callHandler(ctx, p)
	stop(errHandlerReturned)
	ended := context.Cause(work)
	o.awaitNotified(p.notifying.Load()) // events come in order
	o.member.openPartitions.remove(o)
	o.session.closed(p)
	o.member.pauses.closed(o.tp, s)
	o.settle(ctx)
	switch {
	case !errors.Is(ended, errHandlerReturned): // the handler returned because of that
		if err != nil { // as sarama reports what a revoked ConsumeClaim returns
			o.member.report(err, o.tp)
		}
		return ended
	case err != nil:
		return fmt.Errorf("%w: %w", ErrHandler, err)
	default:
		return ErrHandler
	}
}

// settle makes the last commit.
func (o *opening) settle(ctx context.Context) {
	if sabotage.Of(ctx).Off(sabotage.CommitBeforeRelease) {
		o.member.background.Start(o.settleLate)
		return
	}
	err := o.member.committer.Settle(o.claim.Context(), o.tracker)
	if err != nil && !errors.Is(err, offsets.ErrLost) && !o.member.isMissing(o.claim.Context(), o.tp.Topic, err) {
		o.member.log.WarnContext(ctx, "last commit failed", "topic", o.tp.Topic, "partition", o.tp.ID, "error", err)
	}
}

// settleLate commits what was marked last after the claim was released, which is what
// sabotage.CommitBeforeRelease is there against.
func (o *opening) settleLate() {
	<-o.claim.Context().Done()
	ctx := context.WithoutCancel(o.claim.Context())
	if !errors.Is(context.Cause(o.claim.Context()), ownership.ErrRevoked) || kafkaconn.Sleep(ctx, openBackoff) != nil {
		return
	}
	next, text, dirty := o.tracker.Marked()
	if !dirty {
		return
	}
	_ = o.member.committer.Settle(ctx, o.member.committer.Open(o.tp, unasked{o.claim}, o.topicID, next, text))
}

// unasked is a claim that is not asked whether it is trusted.
type unasked struct{ holder }

func (unasked) Trusted() bool { return true }

// awaitNotified waits for the observer when the partition is to be given up, for
// offsets.SettleTimeout at most, within the claim's lifetime. The last commit has a time of
// its own after that: an observer that is slow with an event must not cost it.
func (o *opening) awaitNotified(call *callback) {
	ctx, cancel := context.WithTimeoutCause(o.claim.Context(), offsets.SettleTimeout, offsets.ErrLate)
	defer cancel()
	kafkaconn.Await(ctx, call.returned())
}

// callHandler calls the handler, which may take as long as the partition is owned.
// A panic is an error of the handler like any other: it ends with this partition,
// not with the process.
func (o *opening) callHandler(owned context.Context, p *Partition) error {
	return o.member.users.goGuarded("handler of "+o.tp.String(), func() error { return o.session.user.consume(owned, p) }, nil).result()
}

func (o *opening) newPartition(ctx context.Context, end context.CancelCauseFunc, s source, start int64) *Partition {
	p := &Partition{
		ctx: ctx, end: end, id: o.tp, claim: o.claim, source: s, start: start, tracker: o.tracker,
		committer: o.member.committer, pauses: o.member.pauses, log: o.member.log, metrics: o.member.metrics.of(o.tp.Topic),
	}
	if o.member.observer != nil || len(o.member.interceptors) > 0 {
		p.announce = func(m *sarama.ConsumerMessage) bool { return o.announce(p, m) }
	}
	return p
}

// announce shows a message that is about to be handed out to the interceptors and
// notifies the observer of it. It reports false if p's context ended, or trust did,
// before they returned.
func (o *opening) announce(p *Partition, m *sarama.ConsumerMessage) bool {
	if len(o.member.interceptors) > 0 && (!p.mayHandOut() || !kafkaconn.Await(p.ctx, o.member.intercept(m).returned())) {
		return false
	}
	if o.member.observer == nil {
		return true
	}
	if !p.mayHandOut() {
		return false
	}
	call := o.member.notifyAsync(Event{
		Kind: Message, Topic: m.Topic, Partition: m.Partition, Token: o.claim.Token(), Version: o.claim.Version(), Offset: m.Offset,
	}, nil)
	p.notifying.Store(call)
	return kafkaconn.Await(p.ctx, call.returned())
}

// intercept shows a message to the user's interceptors before it is handed out. What
// they panic with is logged and costs nothing else, as with sarama.
func (m *membership) intercept(msg *sarama.ConsumerMessage) *callback {
	return m.users.goTimed(callInterceptor, func() error {
		for _, i := range m.interceptors {
			if m.users.ended() {
				break // while the one before ran
			}
			<-m.users.goGuarded(callInterceptor, func() error { i.OnConsume(msg); return nil }, nil).returned()
		}
		return nil
	}, nil)
}
