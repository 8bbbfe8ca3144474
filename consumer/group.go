package consumer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/consumer/internal/sessions"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/promreg"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/internal/topiclist"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
)

// Group is one member of a consumer group. It is a sarama.ConsumerGroup.
type Group struct {
	zk       *session.Session
	brokers  *bootstrap
	name     string // the group's name
	settings settings
	metrics  *metrics
	// registerer keeps the metrics of the group, and those of the parts that each membership makes anew, until Close.
	registerer *promreg.Registry
	report     *reporting.Reporter // for all memberships
	log        *errlog.Log         // report's
	pauses     pauses
	seen       seenTopics
	joined     atomic.Bool // whether a membership has joined; then ZooKeeper's refusals end no call
	reach      kafkaconn.Reach

	idle       *ownership.Owner                // describes the member while there is no membership; it never runs
	endSession func(limit time.Duration) error // ends the ZooKeeper session; nil when the session is not the Group's own

	mu      sync.Mutex
	closed  bool               // Close was called
	called  bool               // Consume or Run was called
	stop    context.CancelFunc // ends the running call of Consume or Run
	running chan struct{}      // closed when the running call has returned; nil when no call runs
	current *membership        // nil when the member has left, and its error was returned

	joinAfter time.Time // until when the next membership waits because Kafka's ACLs have refused the last one; zero when they have not
	refusals  int       // number of memberships that were refused one after the other

	outside        string // why the member has left by itself, or could not join; "" once a membership has begun since
	waitsForBroker bool   // the member has left because it is cut off from Kafka, and is to join again

	setupAt   time.Time   // when Setup was called last, in a membership whose call did not end it
	abandoned *membership // the last one that has left while the program's code still ran; nil if none has

	cutOff cutOff // only the running call uses it
}

var _ sarama.ConsumerGroup = (*Group)(nil)

// Member returns the member's name.
func (g *Group) Member() string { return g.settings.Name }

// Consume joins the group, adds the partitions of topics to its set, and consumes those that are this member's, until ctx ends or
// Close is called; then it leaves and returns nil. It also returns nil when an eager session has ended, which is what sessions
// are unless Config says otherwise (docs/sessions.md): call it in a loop. It blocks all the while. If ctx ended the call,
// handlers have StopTimeout, less what [Options] says is kept of it. If the session ended while the member stays, they have
// RebalanceTimeout; then the member leaves, which takes StopTimeout at most.
//
// Consume returns an error when it can't join the group, when the membership is lost for good, and when Setup or Cleanup returns
// one. A ConsumeClaim, Setup, Cleanup or Observer that has not returned in that time is abandoned, and the error is an
// ownership.ErrStuck. A call after that waits, outside of the group, until what was abandoned has returned, or ctx ends. The same
// error is returned when an Observer that does not return has made the member leave. What ZooKeeper refuses, by an ACL or a
// quota, ends the call only if no member of this Group has ever joined; else it goes to Errors, and Consume waits until it is
// allowed. While Consume joins, an unreachable Kafka is sarama.ErrOutOfBrokers, and a named topic that does not exist is
// sarama.ErrUnknownTopicOrPartition. If ZooKeeper can't be reached, Consume waits, and the session's log names the servers.
//
// When Kafka's ACLs refuse one of the topics, or the group, the whole call ends with the error
// (sarama.ErrTopicAuthorizationFailed, sarama.ErrGroupAuthorizationFailed): at the start at once, later after a minute. The text
// says what the ACLs must allow. The next call waits before it joins, so that a loop does not keep the whole group rebalancing:
// docs/semantics.md has the rules, under "Refusals". A wait longer than 5 s is logged as a warning.
//
// When the group's members consume another Kafka cluster, the call ends with [ErrOtherCluster] before this member joins, and the
// next call waits in the same way.
//
// Members of a group may consume different topics; docs/topics.md says what then becomes of a partition, and when all need the
// same. An entry of topics that begins with ^ is a pattern that finds topics, one that begins with !^ excludes some. What can't
// be a topic or a pattern is an error that is kiel.ErrInvalidName.
//
// Call Consume in a loop until ctx ends, as you would call sarama's. A ConsumeClaim that returns while its Messages is open ends
// the call. The call then returns nil, and the error of ConsumeClaim goes to Errors as a *sarama.ConsumerError. So does the end
// of reading in an eager session, as when the topic was created again. In an incremental one a ConsumeClaim does not end the call
// when its partition was revoked, lost or created again, nor with Options.ReopenPartition. After a session that a ConsumeClaim or
// Setup has ended the next Setup is called a second after the last one at the earliest. A ConsumeClaim that returns earlier ends
// the call when that second is over.
//
// When the call ends before ctx does, by a rebalance, a ConsumeClaim or an error of Setup, the member stays in the group and
// waits for the next call, as sarama's does. Meanwhile its claims remain, the partitions that the plan gives to others are
// released, new ones are claimed, and nothing is read. A next call with the same topics goes on from there; one with other topics
// leaves and joins again. When no call comes within the timeout of the ZooKeeper session, the member leaves with a warning in the
// log. An error of that goes to Errors, and the next call joins again. When the membership is lost while the member waits, the
// next call returns the error, and the call after it joins again.
//
// The cause of a session's Context says why the session ends: sarama.ErrRebalanceInProgress when the partitions of an eager one
// change, sarama.ErrSessionConsumeClaimExited when a ConsumeClaim has returned, sarama.ErrSessionHeartbeatFailed, with the
// reason, when a partition of an eager session or the membership is lost, sarama.ErrRebalanceTimedOut when an incremental one
// can't take a partition back whose ConsumeClaim has not returned, else the cause of ctx, or context.Canceled after Close. In an
// incremental session that of a ConsumeClaim also ends with the partition ([Session]).
//
// Consume calls handler as sarama's groups do. Setup is called once for each session, and may mark and reset offsets of Claims to
// say where they start. ConsumeClaim is called for each partition on a goroutine of its own: in an eager session once for each of
// Claims, in an incremental one for each that the member comes to own, while others go on. Cleanup is called once at the end,
// when every ConsumeClaim has returned, if that is in time. docs/differences.md says what differs from sarama's. Only with
// Options.LeaveWithoutKafkaAfter a call may have several sessions, one after the other, each with its Setup and Cleanup.
//
// While one call runs, another returns ErrBusy; after Close it returns sarama.ErrClosedConsumerGroup. If ctx has ended before the
// call, Consume calls nothing of handler, makes a member leave that waits for a call, and returns ctx.Err() itself, as sarama's
// does: a loop that goes on until Consume returns an error ends.
func (g *Group) Consume(ctx context.Context, topics []string, handler sarama.ConsumerGroupHandler) error {
	if handler == nil {
		return failure("", "", errors.New("handler is nil"))
	}
	return g.runSession(ctx, ctx.Err(), topics, g.settings.kind(), func(m *membership, s *consumeSession) sessionUser {
		return m.newGroupSession(s, handler)
	})
}

// runSession checks topics, makes this the running call and serves it. If ctx has ended it makes a member leave that waits for a
// call, and returns ended.
func (g *Group) runSession(ctx context.Context, ended error, topics []string, kind sessions.Kind, user func(*membership, *consumeSession) sessionUser) error {
	if len(topics) == 0 {
		return failure("", "", errors.New("argument topics is empty"))
	}
	list, err := topiclist.Parse(topics)
	if err != nil {
		return failure("", "", operr.Mark(err, sarama.ErrInvalidTopic))
	}
	call, done, err := g.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if ctx.Err() == nil {
		return g.serve(call, ctx, list, kind, user)
	}
	if m := g.member(); m != nil { // the member waits for a call
		m.stopOrderly()
		<-m.done
		g.reportLeft(m)
		g.setSetupAt(time.Time{})
	}
	return ended
}

// reportLeft drops m, which has left between two calls, and reports its error, which no call returns.
func (g *Group) reportLeft(m *membership) {
	if g.forget(m) && m.err != nil {
		g.log.Failed(reporting.KindMember, "", m.err)
		g.report.SendEvenAfterClose(m.err)
	}
}

// begin makes this the running call, until the function that it returns is called.
func (g *Group) begin(ctx context.Context) (context.Context, func(), error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, nil, sarama.ErrClosedConsumerGroup
	}
	if g.running != nil {
		return nil, nil, failure("", "", ErrBusy)
	}
	ctx, stop := context.WithCancel(ctx)
	running := make(chan struct{})
	g.stop, g.running, g.called = stop, running, true
	return ctx, func() {
		stop()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.stop, g.running = nil, nil
		close(running)
	}, nil
}

// Close makes the member leave, in a Consume call or between two, waits until it has left and Consume has returned, StopTimeout
// at most, and closes Errors. It may be called more than once and from anywhere but the handler and the Observer: there Close
// waits for itself, until that counts as stuck. When Close has waited for a second for the program's code, a warning names what
// still runs, such as "handler of orders:1". If that has not returned in the end, Close returns an ownership.ErrStuck that names
// it. Errors of leaving are returned by Consume, or sent to Errors when no Consume runs.
//
// For a Group that NewGroup has made, Close then ends the session, which takes a few seconds at most. It returns the error with
// which the session had ended by itself, or an error if the session was closed before the member had left. Otherwise Close
// returns nil.
func (g *Group) Close() error {
	began := time.Now()
	g.mu.Lock()
	g.closed = true
	g.report.Closing()
	stop, running := g.stop, g.running
	g.mu.Unlock()
	var stuck error
	if running != nil {
		stop()
		stuck = g.awaitCode(running)
	}
	if m := g.member(); m != nil { // the member waits for another Consume
		m.stopOrderly()
		stuck = errors.Join(stuck, g.awaitCode(m.done))
		g.reportLeft(m)
	}
	g.brokers.end()
	g.log.AllGone()
	g.report.Close()
	g.registerer.Close()
	if g.endSession == nil {
		return stuck
	}
	if err := g.endSession(g.settings.StopTimeout - time.Since(began)); err != nil {
		return errors.Join(stuck, failure("end the session", "", err))
	}
	return stuck
}

// Errors returns the channel of errors that no Consume returns, if Config.Consumer.Return.Errors is true. Errors of partitions
// are *sarama.ConsumerError. The log has all these errors, too, by kinds. When nobody reads the channel, the oldest errors are
// dropped and counted.
//
// From the beginning of Close on, errors are not sent, as with a group of sarama, but counted and logged at Debug. Two errors are
// still sent: a callback is stuck, and the member could not leave while no Consume returns that. Close closes the channel.
func (g *Group) Errors() <-chan error { return g.report.Errors() }

// member returns the membership, or nil.
func (g *Group) member() *membership {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.current
}

// forget drops m, which has left. It returns false if m was dropped before.
func (g *Group) forget(m *membership) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.current == m
	if was {
		g.current = nil
	}
	return was
}

func (g *Group) setMember(m *membership) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.current = m
	if m != nil {
		g.outside = ""
	}
}

// leftOut notes why the member has left by itself, or could not join: a trouble that lasts until the member is at work again,
// whether or not a call goes on. since is when that began; zero for now. The call returns err, so the log need not have it.
func (g *Group) leftOut(err error, since time.Time) {
	g.log.FailedDebug(reporting.KindMember, "", err)
	if !since.IsZero() {
		g.log.Began(reporting.KindMember, since)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.outside = statuswrite.Text(err.Error())
}

// setSetupAt stores when Setup was called last; zero if the next session need not wait.
func (g *Group) setSetupAt(at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.setupAt = at
}

func (g *Group) lastSetup() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.setupAt
}

// open returns the open partitions.
func (g *Group) open() map[kiel.Partition]*Partition {
	if m := g.member(); m != nil {
		if s := m.driver.current(); s != nil {
			return s.opens()
		}
	}
	return nil
}

// Pause suspends fetching of those of the partitions that are open. Messages fetched before still come. A paused partition that
// is revoked and comes back is still paused. Like the other three methods it does not block, and moves no partition.
func (g *Group) Pause(partitions map[string][]int32) {
	open := g.open()
	for topic, ids := range partitions {
		for _, id := range ids {
			p := kiel.Partition{Topic: topic, ID: id}
			if o := open[p]; o != nil {
				o.Pause()
			}
		}
	}
}

// Resume ends the pause of partitions, also of those that are not open.
func (g *Group) Resume(partitions map[string][]int32) {
	for topic, ids := range partitions {
		for _, id := range ids {
			g.pauses.set(kiel.Partition{Topic: topic, ID: id}, false)
		}
	}
}

// PauseAll pauses all partitions that are open now.
func (g *Group) PauseAll() {
	for _, o := range g.open() {
		o.Pause()
	}
}

// ResumeAll ends all pauses.
func (g *Group) ResumeAll() { g.pauses.resumeAll() }
