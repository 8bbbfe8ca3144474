package consumer

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/fetch"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/consumer/internal/sessions"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/pause"
	"github.com/kielgo/kiel/internal/usercall"
	"github.com/kielgo/kiel/ownership"
)

// The first and the longest wait between two attempts to open a partition. The same waits separate openings whose reading ends by
// itself.
const (
	openBackoff    = 100 * time.Millisecond
	maxOpenBackoff = 5 * time.Second
)

// errHandlerReturned is the cause of a handler's context when the handler has returned by itself.
var errHandlerReturned = errors.New("the handler has returned")

// errFence marks the errors of the user's Fence.
var errFence = errors.New("fence")

// errReported marks errors that are returned to ownership, which logs them, and that were sent to the user before.
var errReported = errors.New("reported")

// reportedError makes an error an errReported, and keeps its text.
type reportedError struct{ error }

func (e reportedError) Unwrap() error   { return e.error }
func (reportedError) Is(err error) bool { return err == errReported }

// own is the handler that ownership calls with a claim. It does what the driver orders, until that lets it return: then ownership
// releases the claim, if it stands. ctx ends when the partition is revoked or lost.
func (m *membership) own(ctx context.Context, h ownedClaim) error {
	o := newOpening(ctx, m, h)
	m.owns.Begin()
	defer m.owns.End()
	defer close(o.gone)
	defer m.refusals.claimed(o.tp)()
	defer m.addOpening(o)()
	defer m.driver.claimed(o)()
	for {
		select {
		case it := <-o.orders:
			switch it.what {
			case toOpen:
				if err := o.under(ctx, it.session); err != nil {
					return err
				}
				m.driver.returned(o)
			case toCommit:
				o.commit(it.session)
				m.driver.of(o, sessions.Committed, nil)
			case toRelease:
				if o.last != nil { // the claim is lost: nothing is stored
					o.commitLast(o.last)
				}
				if !o.claim.Trusted() {
					<-ctx.Done() // ownership is about to hear of it
				}
				return nil
			}
		case it := <-o.stores:
			o.store(ctx, it.session)
			close(it.done)
		}
	}
}

func newOpening(ctx context.Context, m *membership, h ownedClaim) *opening {
	o := &opening{
		member: m, work: ctx, claim: h, tp: kiel.Partition{Topic: h.Topic(), ID: h.Partition()}, since: time.Now(),
		orders: make(chan order, maxOrders), stores: make(chan storing), gone: make(chan struct{}),
	}
	o.prevTopicID, o.prevPartitions = m.catalog.ID(o.tp.Topic), m.catalog.Count(o.tp.Topic) // the topic may be missing now
	o.setWaiting(o.since)
	return o
}

// order is what the driver has an opening do.
type order struct {
	what    toDo
	session *consumeSession
}

type toDo int

const (
	toOpen    toDo = iota // open the partition, and call ConsumeClaim, until the session closes it
	toCommit              // the last commit
	toRelease             // return
)

// maxOrders is how many orders may wait: the driver gives the next one when the last is done, but for toRelease.
const maxOrders = 2

// storing is a request of Setup to store where partitions start.
type storing struct {
	session *consumeSession
	done    chan struct{}
}

// order has the opening do something. It does not block.
func (o *opening) order(what toDo, s *consumeSession) { o.orders <- order{what, s} }

// under consumes the partition under one session, until that closes it, or the partition is revoked or lost.
func (o *opening) under(ctx context.Context, s *consumeSession) error {
	o.session = s
	ctx, stop := s.within(ctx)
	defer stop()
	defer o.enter(atSession)
	return o.repeat(ctx)
}

// repeat opens the partition again and again until ctx ends, or a ConsumeClaim has returned that is the last one. With
// Options.ReopenPartition it returns an errReported when the handler has returned by itself: ownership logs that error, and calls
// own again after a pause.
func (o *opening) repeat(ctx context.Context) error {
	wait := pause.Backoff{Growth: pause.Doubling(openBackoff, maxOpenBackoff)}
	for ctx.Err() == nil && o.last == nil {
		began := time.Now()
		err := o.run(ctx)
		errors.As(err, &o.cut)
		o.noteFailure(err)
		switch {
		case ctx.Err() != nil: // err says only that ctx ended
		case errors.Is(err, errFence): // err may wrap any error of the user
			o.member.report.FailedOf(o.tp, reporting.KindFence, err)
		case errors.Is(err, errHandlerReturned): // the session ends
		case errors.Is(err, ErrHandler):
			o.again = true
			return reportedError{err}
		case o.member.refusals.failed(o.tp, err):
			<-ctx.Done() // the member leaves, and its call returns the refusal
		case o.worthReporting(ctx, err):
			o.member.report.FailedOf(o.tp, o.at().kind(), err)
		}
		if time.Since(began) > time.Minute {
			wait.Reset()
		}
		if o.last == nil {
			_ = wait.Wait(ctx)
		}
	}
	return nil
}

// worthReporting reports whether a failure is to be reported here. The other failures are reported elsewhere, or by the next
// attempt.
func (o *opening) worthReporting(ctx context.Context, err error) bool {
	switch {
	case err == nil, errors.Is(err, offsets.ErrLost), errors.Is(err, ownership.ErrLost), errors.Is(err, ErrRecreated), errors.Is(err, ErrTopicMissing):
		return false
	case o.member.catalog.Explains(ctx, o.tp.Topic, err):
		return false
	case errors.Is(err, sarama.ErrUnknownTopicOrPartition): // the topic does not have the partition, which is reported once
		first := !o.unknown
		o.unknown = true
		return first
	case leaderPending(err):
		o.leaderRetries++
		o.member.log.DebugContext(ctx, "leader not ready", "partition", o.tp.String(), "error", err)
		return o.leaderRetries > o.member.group.settings.config.Metadata.Retry.Max
	default:
		return true
	}
}

// handlerEnded acts on the return of a handler. err is the handler's error. ended is the cause with which the handler's context
// ended; errHandlerReturned says that the handler returned by itself. handlerEnded reports err, or ends the session with err, and
// returns ended. When the partition alone is to be opened again, it reports err as an ErrHandler, and returns that instead. again
// says that the handler has returned by itself before, at once, and has got no further since.
func (o *opening) handlerEnded(ended, err error, again bool) error {
	s, byItself := o.session, errors.Is(ended, errHandlerReturned)
	switch {
	case !byItself || s.ending():
		switch {
		case s.isEnd(err), pause.OnlyEnd(o.claim.Context(), err):
		case s.isOver(): // the call does not wait for the handler any more
			o.member.metrics.handlerFailed(o.tp.Topic, actionReport)
			o.member.report.Drop(reporting.OfPartition(err, o.tp))
		default: // sarama, too, reports the error of a revoked ConsumeClaim
			o.member.metrics.handlerFailed(o.tp.Topic, actionReport)
			o.member.report.FailedOf(o.tp, reporting.KindHandler, err)
		}
	case o.member.group.settings.ReopenPartition:
		ended = errHandler(err)
		o.member.metrics.handlerFailed(o.tp.Topic, actionReopen)
		o.member.report.SendOf(o.tp, ended) // not later: the partition may be revoked before it is closed
	default:
		o.endSession(err, again)
	}
	return ended
}

// endSession ends the session because a handler has returned err by itself. It reports err if the call does not return it. A
// return without an error may be meant; again and again it is not.
func (o *opening) endSession(err error, again bool) {
	s, log := o.session, o.member.group.log
	failure := s.user.failure(o.tp, err)
	if failure != nil || err != nil {
		o.member.metrics.handlerFailed(o.tp.Topic, actionSession)
	}
	first := s.exit(failure)
	o.member.driver.of(o, sessions.ByItself, nil)
	switch {
	case err != nil && (failure == nil || !first && !s.isEnd(err)): // the call does not return err
		o.member.report.FailedOf(o.tp, reporting.KindHandler, err)
	case failure != nil && first:
		log.Failed(reporting.KindHandler, o.tp.String(), failure)
	case first && again:
		log.FailedWarn(reporting.KindHandler, o.tp.String(), errHandler(nil))
	case first:
		log.FailedInfo(reporting.KindHandler, o.tp.String(), errHandler(nil))
	}
}

// errHandler returns an ErrHandler that wraps the error of a handler.
func errHandler(err error) error {
	if err == nil {
		return failure("", "", ErrHandler)
	}
	return failure("", "", operr.Because(ErrHandler, err))
}

// opening consumes the partition of one claim under one session after the other. Each call of run opens the partition at its
// start position, and closes it after its last commit. It is made by own, and ends when own returns.
type opening struct {
	member  *membership
	work    context.Context //nolint:containedctx // ends when the partition is revoked or lost
	claim   ownedClaim
	session *consumeSession
	tp      kiel.Partition
	again   bool // ownership calls own again after a pause, unless the partition is revoked or lost

	// prevTopicID and prevPartitions are the topic's id and number of partitions when a start position was committed last, or, if
	// none was, when the partition was claimed. They are zero when not known.
	prevTopicID    sarama.Uuid
	prevPartitions int32
	newEnd         *int64 // the end of the partition when an attempt first found the group new on the topic; nil if none did

	topicID       sarama.Uuid           // the topic's id now
	cut           *fetch.TruncatedError // where the log was truncated, until the partition is open again; nil if it was not truncated
	tracker       *offsets.Tracker
	last          *Partition       // the handler has returned, and tracker stays open until the last commit; nil if no tracker is open so
	leaderRetries int              // number of attempts since the partition was open that failed because its leader was not ready
	unknown       bool             // it was reported that Kafka does not have the partition, which was not open since
	leaderEpoch   int32            // the leader epoch of the record batch before the start position; -1 when it is not known
	origin        reporting.Origin // where the start position comes from
	early         *early           // the stream that is opened while the start position is committed; nil if there is none
	since         time.Time        // when the partition was claimed, or was open last

	orders chan order
	stores chan storing
	gone   chan struct{} // closed when own has returned

	progress
}

// noteFailure stores why the last attempt failed, for the status.
func (o *opening) noteFailure(err error) {
	if err == nil {
		o.failure.Store(nil)
		return
	}
	o.failure.Store(new(err.Error()))
}

// run opens the partition, and returns why the partition closed again. The caller ignores the error if ctx has ended.
func (o *opening) run(ctx context.Context) error {
	defer o.dropEarly()
	start, err := o.position(ctx, true)
	if err != nil {
		return err
	}
	s, start, err := o.openStream(ctx, start)
	if err != nil {
		o.member.committer.Close(o.claim.Context(), o.tracker)
		return err
	}
	o.cut, o.unknown, o.leaderRetries = nil, false, 0
	o.member.refusals.opened(o.tp)
	o.member.report.Works(o.tp, reporting.KindMetadata, reporting.KindFence, reporting.KindOffsets) // the fetcher ends those of reporting.KindFetch
	return o.consume(ctx, s, start)
}

// consume runs the handler on an open stream and commits its last marks.
func (o *opening) consume(ctx context.Context, s stream, start int64) error {
	work, stop := context.WithCancelCause(ctx)
	defer s.Close() // before consume returns, because the next session may open the partition at once
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
	p.reading.resumed = o.member.pauses.opened(o.tp, s)
	o.setOpen()
	o.member.shut.opened(o)
	o.logOpened(start)
	err := o.callHandler(ctx, p)
	p.handlerReturned(ctx)
	again := o.member.stumbled.again(p) && time.Since(p.openedAt) < hastyLimit
	ended := o.handlerEnded(context.Cause(work), err, again)
	if errors.Is(ended, errHandlerReturned) || errors.Is(ended, ErrHandler) {
		o.member.stumbled.at(p)
	}
	o.member.openPartitions.remove(o)
	o.member.shut.closed(o, p)
	o.session.closed(p, errors.Is(ended, errHandlerReturned))
	o.member.pauses.closed(o.tp, s)
	o.handlerDone(ctx, p, ended)
	o.since = time.Now()
	o.setWaiting(o.since)
	return ended
}

// handlerDone commits the marks if the partition is opened again in this session, or by another call of own. Otherwise the
// tracker stays open until the driver orders the last commit.
func (o *opening) handlerDone(ctx context.Context, p *Partition, ended error) {
	s := o.session
	if ctx.Err() == nil && !s.kind.Eager && !errors.Is(ended, errHandlerReturned) {
		o.commitLast(p)
		return
	}
	o.last = p
	if !s.kind.Eager && s.endsAlone() {
		o.awaitNotified(p.notifying.Load())
		o.storeMarks(o.member.committer.Store) // if AutoCommit is on; Cleanup may take long
	}
}

// awaitNotified waits for a call of the Observer when the partition is closed, for offsets.LastCommitTimeout at most, within the
// claim's lifetime. The last commit has a time of its own after that, so that a slow Observer does not use it up.
func (o *opening) awaitNotified(call *usercall.Call) {
	ctx, cancel := context.WithTimeoutCause(o.claim.Context(), offsets.LastCommitTimeout, offsets.ErrLate)
	defer cancel()
	kafkaconn.Await(ctx, call.Returned())
}

// callHandler calls the handler, which may run as long as the partition is owned. A panic is an error of the handler like any
// other. It does not end the process.
func (o *opening) callHandler(owned context.Context, p *Partition) error {
	o.inUser.Store(true)
	defer o.inUser.Store(false)
	return o.member.users.Guard.Go(ofOne(callHandler, o.tp), func() error { return o.session.user.consume(owned, p) }, nil).Result()
}

func (o *opening) newPartition(ctx context.Context, end context.CancelCauseFunc, s stream, start int64) *Partition {
	_, text, _ := o.tracker.Marked() // nothing is marked yet
	p := &Partition{
		ctx: ctx, end: end, id: o.tp, claim: o.claim, stream: s, start: start, text: text, tracker: o.tracker,
		committer: o.member.committer, pauses: o.member.pauses, log: o.member.group.log, countLate: o.member.lateMark,
		metrics: o.member.metrics.of(o.tp.Topic), openedAt: time.Now(), openTook: time.Since(o.since),
		keepsItself: o.member.group.settings.Fence != nil || o.origin == reporting.FromSetup,
	}
	if o.member.observer != nil || len(o.member.interceptors) > 0 {
		p.announce = func(m *sarama.ConsumerMessage) bool { return o.announce(p, m) }
	}
	return p
}

// announce calls the interceptors with a message that is about to be handed out, and notifies the Observer of the message. It
// returns false if p's context or trust ended before these calls returned.
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

// intercept calls the user's interceptors with a message that is about to be handed out. A panic of an interceptor is logged and
// has no other effect, as with sarama.
func (m *membership) intercept(msg *sarama.ConsumerMessage) *usercall.Call {
	return m.users.Go(usercall.Callback{Kind: callInterceptor}, func() error {
		for _, i := range m.interceptors {
			if m.users.Over() {
				break // the time for callbacks ended while the interceptor before ran
			}
			<-m.users.Guard.Go(usercall.Callback{Kind: callInterceptor, About: typeOf(i)}, func() error { i.OnConsume(msg); return nil }, nil).Returned()
		}
		return nil
	}, nil)
}
