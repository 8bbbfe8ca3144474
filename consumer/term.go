package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/allocfn"
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

// errHandlerReturned ends a pump whose handler has returned by itself.
var errHandlerReturned = errors.New("consumer: ConsumeClaim returned")

// errReported is returned to ownership for what was reported here already.
var errReported = errors.New("reported")

// own consumes a partition for as long as it is owned, under one session after the
// other: ownership calls it, and releases the claim after it has returned. ctx ends
// when the partition is revoked or lost.
func (m *membership) own(ctx context.Context, h holder) error {
	t := term{membership: m, holder: h, partition: allocfn.Partition{Topic: h.Topic(), ID: h.Partition()}}
	for s := range m.sessions(ctx) {
		t.session = s
		if err := t.repeat(ctx); err != nil {
			return err
		}
	}
	return nil
}

// repeat opens the partition again and again until ctx ends or the session closes its
// partitions. Only what ConsumeClaim returned by itself ends it before, with errReported.
func (t *term) repeat(ctx context.Context) error {
	ctx, stop := t.session.within(ctx)
	defer stop()
	wait := kafkaconn.NewBackoff(openBackoff, maxOpenBackoff)
	for ctx.Err() == nil {
		began := time.Now()
		err := t.run(ctx)
		t.before = t.topic
		switch {
		case ctx.Err() != nil: // err tells the same
		case errors.Is(err, ErrHandler):
			t.report(err, t.partition)
			return errReported
		case err != nil && !errors.Is(err, offsets.ErrLost) && !errors.Is(err, ErrRecreated): // what comes next reports it
			t.report(err, t.partition)
		}
		if time.Since(began) > time.Minute {
			wait.Reset()
		}
		_ = wait.Wait(ctx)
	}
	return nil
}

// term is one opening of a partition: position, messages, last commit.
type term struct {
	*membership
	holder
	session   *consumeSession
	partition allocfn.Partition
	before    sarama.Uuid // the topic's id in the term before, zero if there was none
	topic     sarama.Uuid
	tracker   *offsets.Tracker
}

// run returns when the partition is closed again: because ctx ended, and then it
// returns anything; or with the reason.
func (t *term) run(ctx context.Context) error {
	start, err := t.position(ctx)
	if err != nil {
		return err
	}
	s, start, err := t.openStream(ctx, start)
	if err != nil {
		t.committer.Close(t.Context(), t.tracker)
		return err
	}
	return t.consume(ctx, s, start)
}

// position finds out where to start, opens the tracker there, and commits it: the
// policy's choice must not be made twice, and the commit of an owner before us
// may come late.
func (t *term) position(ctx context.Context) (int64, error) {
	if err := t.catalog.refresh(ctx, time.Second); err != nil {
		t.log.WarnContext(ctx, "topics not described", "error", err) // what is known is good enough
	}
	t.topic = t.catalog.id(t.Topic())
	found, err := t.reader.Get(ctx, t.partition)
	if err != nil {
		return 0, err
	}
	start, text, reason := found.Offset, found.Text, ""
	from := t.from
	switch {
	case start >= 0 && !offsets.SameTopic(found.TopicID, t.topic), start < 0 && !offsets.SameTopic(t.before, t.topic):
		reason, from = reasonRecreated, Earliest // the policy was for the start of the old one
		t.report(fmt.Errorf("%w: its offsets do not count, starting at the first message", offsets.Recreated(t.Topic())), t.partition)
	case start < 0:
		reason = reasonNone
	}
	if reason != "" {
		text = ""
		if start, err = t.edge(ctx, t.partition, from); err != nil {
			return 0, fmt.Errorf("consumer: start of %s: %w", t.partition, err)
		}
	}
	t.tracker = t.committer.Open(t.partition, t.holder, t.topic, start, text)
	if err := t.first(ctx, reason); err != nil {
		t.committer.Close(t.Context(), t.tracker)
		return 0, err
	}
	return start, nil
}

// first commits the position that the partition starts at.
func (t *term) first(ctx context.Context, reason string) error {
	if err := t.committer.Commit(ctx, t.tracker); err != nil {
		return fmt.Errorf("start position: %w", err)
	}
	if reason != "" {
		t.metrics.resets.WithLabelValues(t.Topic(), reason).Inc()
	}
	return nil
}

// openStream opens the stream at start, or where the policy says when Kafka does
// not have start.
func (t *term) openStream(ctx context.Context, start int64) (stream, int64, error) {
	s, err := t.fetcher.open(ctx, t.partition, start)
	if !errors.Is(err, sarama.ErrOffsetOutOfRange) {
		return s, start, err
	}
	if !t.resetInvalid {
		return nil, 0, fmt.Errorf("%w: %d: %w", ErrOffsetReset, start, err)
	}
	oldest, err := t.edge(ctx, t.partition, Earliest)
	if err != nil {
		return nil, 0, err
	}
	next := oldest
	if start > oldest && t.from == Latest {
		if next, err = t.edge(ctx, t.partition, Latest); err != nil {
			return nil, 0, err
		}
	}
	t.report(fmt.Errorf("%w: %d, first message %d, continuing at %d", ErrOffsetReset, start, oldest, next), t.partition)
	t.tracker.Move(next)
	if err := t.first(ctx, reasonOutOfRange); err != nil {
		return nil, 0, err
	}
	s, err = t.fetcher.open(ctx, t.partition, next)
	return s, next, err
}

// consume runs the handler on an open stream and commits what it marked.
func (t *term) consume(ctx context.Context, s stream, start int64) error {
	cl := newClaim(t.holder, s, start)
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	pumped, told := make(chan error, 1), make(chan struct{})
	t.pumping.Start(func() {
		defer close(told)
		for e := range s.Errors() {
			t.report(e, t.partition)
		}
	})
	opened := t.notifyAsync(Event{Kind: Opened, Topic: t.Topic(), Partition: t.Partition(), Token: t.Token(), Version: t.Version(), Offset: start}, nil)
	if !kafkaconn.Await(ctx, opened.returned()) {
		t.fetcher.close(t.partition, s)
		t.awaitTold(opened)
		t.committer.Close(t.Context(), t.tracker)
		return context.Cause(ctx)
	}
	t.session.opened(t.partition, cl)
	t.openPartitions.add(t, stop)
	cl.gate.setUser(t.pauses.has(t.partition))

	p := t.pump(cl)
	t.pumping.Start(func() {
		err := p.run(work)
		t.fetcher.close(t.partition, s)
		pumped <- err
	})

	err := t.callHandler(cl)
	stop(errHandlerReturned)
	ended := <-pumped
	t.awaitTold(p.telling) // what the observer is told is in order
	if errors.Is(ended, errStreamEnded) {
		<-told // why it ended
	}
	t.openPartitions.remove(t)
	t.session.closed(t.partition, cl)
	if sabotage.Of(ctx).Off(sabotage.CommitBeforeRelease) {
		t.pumping.Start(t.settleLate)
	} else if settled := t.committer.Settle(t.Context(), t.tracker); settled != nil && !errors.Is(settled, offsets.ErrLost) {
		t.log.WarnContext(ctx, "last commit failed", "topic", t.Topic(), "partition", t.Partition(), "error", settled)
	}
	switch {
	case !errors.Is(ended, errHandlerReturned): // Messages was closed first
		if err != nil { // as sarama reports what a revoked ConsumeClaim returns
			t.report(err, t.partition)
		}
		return ended
	case err != nil:
		return fmt.Errorf("%w: %w", ErrHandler, err)
	default:
		return ErrHandler
	}
}

// settleLate commits what was marked last after the claim was released, which is what
// sabotage.CommitBeforeRelease is there against.
func (t *term) settleLate() {
	<-t.Context().Done()
	ctx := context.WithoutCancel(t.Context())
	if !errors.Is(context.Cause(t.Context()), ownership.ErrRevoked) || kafkaconn.Sleep(ctx, openBackoff) != nil {
		return
	}
	next, text, dirty := t.tracker.Marked()
	if !dirty {
		return
	}
	_ = t.committer.Settle(ctx, t.committer.Open(t.partition, unasked{t.holder}, t.topic, next, text))
}

// unasked is a claim that is not asked whether it is trusted.
type unasked struct{ holder }

func (unasked) Trusted() bool { return true }

// awaitTold waits for the observer, when the partition is to be given up: for
// offsets.SettleTimeout at most, within the claim's lifetime. The last commit has a time of
// its own after that: one who is slow with an event must not cost it.
func (t *term) awaitTold(call *callback) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), offsets.SettleTimeout, offsets.ErrLate)
	defer cancel()
	kafkaconn.Await(ctx, call.returned())
}

// callHandler calls ConsumeClaim, which may take as long as the partition is
// owned. A panic is an error of the handler like any other: it ends with this
// partition, not with the process.
func (t *term) callHandler(cl *claim) error {
	return t.users.goGuarded("ConsumeClaim of "+t.partition.String(), func() error { return t.session.user.consume(cl) }, nil).result()
}

func (t *term) pump(cl *claim) *pump {
	p := &pump{
		claim:    cl,
		limit:    t.queueLimit,
		messages: t.metrics.messages.WithLabelValues(t.Topic()),
		bytes:    t.metrics.bytes.WithLabelValues(t.Topic()),
		handedOut: func(m *sarama.ConsumerMessage) *callback {
			return t.notifyAsync(Event{
				Kind: Message, Topic: m.Topic, Partition: m.Partition, Token: t.Token(), Version: t.Version(), Offset: m.Offset,
			}, func() { cl.told.Store(m.Offset + 1) })
		},
	}
	if len(t.interceptors) > 0 {
		p.prepare = func(m *sarama.ConsumerMessage) *callback { return t.intercept(m) }
	}
	return p
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
