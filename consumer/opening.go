package consumer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/fetch"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/internal/usercall"
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

// errFence is in the errors of the user's Fence.
var errFence = errors.New("fence")

// errReported is in what is returned to ownership and was handed to the user here already. Ownership logs it.
var errReported = errors.New("reported")

// reportedError is an error that is errReported too, with its text as it was.
type reportedError struct{ error }

func (e reportedError) Unwrap() error   { return e.error }
func (reportedError) Is(err error) bool { return err == errReported }

// own consumes a partition for as long as it is owned, under one session after the
// other: ownership calls it, and releases the claim after it has returned. ctx ends
// when the partition is revoked or lost.
func (m *membership) own(ctx context.Context, h holder) error {
	o := opening{member: m, claim: h, tp: kiel.Partition{Topic: h.Topic(), ID: h.Partition()}, since: time.Now()}
	o.prevTopicID, o.prevPartitions = m.catalog.id(o.tp.Topic), m.catalog.count(o.tp.Topic) // the topic may be missing now
	o.opens(o.since)
	defer m.refusals.claimed(o.tp)()
	defer m.begins(&o)()
	for s := range m.sessions(ctx) {
		if err := o.under(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// repeat opens the partition again and again until ctx ends or the session closes its
// partitions. With Options.ReopenPartition it ends before with errReported when the handler
// has returned by itself: ownership logs that, and calls own again after a pause.
func (o *opening) repeat(ctx context.Context) error {
	ctx, stop := o.session.within(ctx)
	defer stop()
	wait := pause.Backoff{Growth: pause.Doubling(openBackoff, maxOpenBackoff)}
	for ctx.Err() == nil && !o.held {
		began := time.Now()
		err := o.run(ctx)
		errors.As(err, &o.cut)
		o.noteFailure(err)
		switch {
		case ctx.Err() != nil: // err tells the same
		case errors.Is(err, errFence): // whatever it wraps is the user's
			o.member.failed(kindFence, err, o.tp)
		case errors.Is(err, errHandlerReturned):
			<-ctx.Done() // the session ends
		case errors.Is(err, ErrHandler):
			o.again = true
			return reportedError{err}
		case o.member.refusals.failed(o.tp, err):
			<-ctx.Done() // the member leaves, and its call returns why
		case o.worthReporting(ctx, err):
			o.member.failed(o.at().kind(), err, o.tp)
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
	case settles(err):
		o.settling++
		o.member.log.DebugContext(ctx, "leader not ready", "partition", o.tp.String(), "error", err)
		return o.settling > o.member.group.settings.config.Metadata.Retry.Max
	default:
		return true
	}
}

// handlerEnded does what follows from a handler's end: it returned err after its context had ended with the cause ended, which is
// errHandlerReturned if it returned by itself. It reports err, or ends the session with it, and returns ended. When the partition
// alone is to be opened again, it reports err as an ErrHandler, which it returns.
func (o *opening) handlerEnded(ended, err error) error {
	s, byItself := o.session, errors.Is(ended, errHandlerReturned)
	switch {
	case !byItself || s.ending():
		switch {
		case s.isEnd(err), isEndOf(o.claim.Context(), err):
		case s.isOver(): // nobody waits for the handler any more
			o.member.metrics.handlerFailed(o.tp.Topic, actionReport)
			o.member.group.drop(ofPartition(err, o.tp))
		default: // as sarama reports what a revoked ConsumeClaim returns
			o.member.metrics.handlerFailed(o.tp.Topic, actionReport)
			o.member.failed(kindHandler, err, o.tp)
		}
	case o.member.group.settings.ReopenPartition:
		ended = errHandler(err)
		o.member.metrics.handlerFailed(o.tp.Topic, actionReopen)
		o.member.pass(ended, o.tp) // now: the partition may be revoked before it is closed
	default:
		o.endSession(err)
	}
	return ended
}

// endSession ends the session because a handler has returned err by itself, and reports err, if the call does not return it.
func (o *opening) endSession(err error) {
	s, log := o.session, o.member.group.log
	failure := s.user.failure(o.tp, err)
	if failure != nil || err != nil {
		o.member.metrics.handlerFailed(o.tp.Topic, actionSession)
	}
	first := s.exit(failure)
	switch {
	case err != nil && (failure == nil || !first && !s.isEnd(err)): // no call returns it
		o.member.failed(kindHandler, err, o.tp)
	case failure != nil && first:
		log.FailedWarn(kindHandler, o.tp.String(), failure)
	case first:
		log.FailedInfo(kindHandler, o.tp.String(), ErrHandler)
	}
}

// errHandler returns an ErrHandler that wraps what a handler has returned.
func errHandler(err error) error {
	if err == nil {
		return ErrHandler
	}
	return fmt.Errorf("%w: %w", ErrHandler, err)
}

// opening is one stretch of a partition from its start position to its last commit.
type opening struct {
	member  *membership
	claim   holder
	session *consumeSession
	tp      kiel.Partition
	again   bool // ownership calls own again after a pause, unless the partition goes

	// The topic's id, and how many partitions it had, when a start position was committed last, or else when the partition was
	// claimed; zero when not known.
	prevTopicID    sarama.Uuid
	prevPartitions int32

	topicID  sarama.Uuid           // the topic's id now
	cut      *fetch.TruncatedError // how the log was truncated, until it is read from there; nil if it was not
	tracker  *offsets.Tracker
	held     bool  // the handler has returned, and tracker is open until Cleanup has
	settling int   // how many tries have failed with what settles, since it was open
	unknown  bool  // it was reported that Kafka does not have the partition, and it was not opened since
	epoch    int32 // the leader epoch of the record batch before the start position; -1 when it is not known
	origin   origin
	since    time.Time // when the partition was claimed, or had been open last

	progress
}

// noteFailure notes why the last try failed, for those who look at the opening from outside.
func (o *opening) noteFailure(err error) {
	if err == nil {
		o.failure.Store(nil)
		return
	}
	o.failure.Store(new(err.Error()))
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
	o.cut, o.unknown, o.settling = nil, false, 0
	o.member.refusals.opened(o.tp)
	o.member.works(o.tp, kindMetadata, kindFence, kindOffsets, kindFetch)
	return o.consume(ctx, s, start)
}

// consume runs the handler on an open source and commits what it marked.
func (o *opening) consume(ctx context.Context, s source, start int64) error {
	work, stop := context.WithCancelCause(ctx)
	defer s.Close() // the next session may open the partition at once
	defer stop(nil)
	o.member.background.Start(func() {
		<-work.Done()
		s.Close()
	})
	o.enter(atObserver)
	opened := o.member.notifyAsync(Event{
		Kind: Opened, Topic: o.tp.Topic, Partition: o.tp.ID, Token: o.claim.Token(), Version: o.claim.Version(), Offset: start,
	}, nil)
	if !kafkaconn.Await(ctx, opened.Returned()) {
		stop(nil)
		o.awaitNotified(opened)
		o.member.committer.Close(o.claim.Context(), o.tracker)
		return context.Cause(ctx)
	}
	p := o.newPartition(work, stop, s, start)
	o.session.opened(p)
	o.session.forgetSeek(o.tp)
	o.member.openPartitions.add(o, stop)
	p.resumed = o.member.pauses.opened(o.tp, s)
	o.isOpen()
	o.logOpened(start)
	err := o.callHandler(ctx, p)
	p.handlerReturned(ctx)
	ended := o.handlerEnded(context.Cause(work), err)
	if errors.Is(ended, errHandlerReturned) || errors.Is(ended, ErrHandler) {
		o.member.stumbled.at(p)
	}
	o.awaitNotified(p.notifying.Load()) // events come in order
	o.member.openPartitions.remove(o)
	o.session.closed(p, errors.Is(ended, errHandlerReturned))
	o.member.pauses.closed(o.tp, s)
	if o.mayHold() {
		o.hold()
	} else {
		o.lastCommit(o.member.committer.Settle)
	}
	o.since = time.Now()
	o.opens(o.since)
	return ended
}

// awaitNotified waits for the observer when the partition is to be given up, for
// offsets.SettleTimeout at most, within the claim's lifetime. The last commit has a time of
// its own after that: an observer that is slow with an event must not cost it.
func (o *opening) awaitNotified(call *usercall.Call) {
	ctx, cancel := context.WithTimeoutCause(o.claim.Context(), offsets.SettleTimeout, offsets.ErrLate)
	defer cancel()
	kafkaconn.Await(ctx, call.Returned())
}

// callHandler calls the handler, which may take as long as the partition is owned.
// A panic is an error of the handler like any other: it ends with this partition,
// not with the process.
func (o *opening) callHandler(owned context.Context, p *Partition) error {
	o.inUser.Store(true)
	defer o.inUser.Store(false)
	return o.member.users.Guard.Go(ofOne(callHandler, o.tp), func() error { return o.session.user.consume(owned, p) }, nil).Result()
}

func (o *opening) newPartition(ctx context.Context, end context.CancelCauseFunc, s source, start int64) *Partition {
	p := &Partition{
		ctx: ctx, end: end, id: o.tp, claim: o.claim, source: s, start: start, tracker: o.tracker,
		committer: o.member.committer, pauses: o.member.pauses, log: o.member.group.log, late: o.member.lateMark,
		metrics: o.member.metrics.of(o.tp.Topic), openedAt: time.Now(), openTook: time.Since(o.since),
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
	if len(o.member.interceptors) > 0 && (!p.mayHandOut() || !kafkaconn.Await(p.ctx, o.member.intercept(m).Returned())) {
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
	return kafkaconn.Await(p.ctx, call.Returned())
}

// typeOf names the type of an interceptor.
func typeOf(i sarama.ConsumerInterceptor) string {
	if i == nil {
		return ""
	}
	return reflect.TypeOf(i).String()
}

// intercept shows a message to the user's interceptors before it is handed out. What
// they panic with is logged and costs nothing else, as with sarama.
func (m *membership) intercept(msg *sarama.ConsumerMessage) *usercall.Call {
	return m.users.Go(usercall.Callback{Kind: callInterceptor}, func() error {
		for _, i := range m.interceptors {
			if m.users.Over() {
				break // while the one before ran
			}
			<-m.users.Guard.Go(usercall.Callback{Kind: callInterceptor, About: typeOf(i)}, func() error { i.OnConsume(msg); return nil }, nil).Returned()
		}
		return nil
	}, nil)
}
