package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/session"
)

// Group is one member of a consumer group. It is a sarama.ConsumerGroup.
type Group struct {
	zk       *session.Session
	brokers  []string
	name     string // of the group
	settings settings
	metrics  *metrics
	errs     *errorQueue
	pauses   pauses

	mu      sync.Mutex
	closed  bool
	stop    context.CancelFunc // of the running Consume
	running chan struct{}      // closed when it has returned
	current *membership        // nil when the member has left, and the error of that was returned
}

var _ sarama.ConsumerGroup = (*Group)(nil)

// New returns a member of a group that consumes from the Kafka behind brokers,
// coordinated through s, which session.Start has started or whose Run somebody else
// calls. It checks its arguments, does no I/O and starts nothing.
func New(s *session.Session, brokers []string, group string, opts Options) (*Group, error) {
	set, err := newSettings(brokers, group, opts)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, errors.New("consumer: the session is nil")
	}
	m, err := newMetrics(set.Registerer, group)
	if err != nil {
		return nil, err
	}
	return &Group{
		zk: s, brokers: slices.Clone(brokers), name: group, settings: set, metrics: m,
		errs: newErrorQueue(set.config.ChannelBufferSize, m.dropped.Inc),
	}, nil
}

// Name returns the member's name.
func (g *Group) Name() string { return g.settings.Name }

// Consume joins the group, adds the partitions of topics to its set, and
// consumes those that are this member's, until ctx ends or Close is called; then
// it leaves and returns nil. It blocks all the while, after ctx's end for
// StopTimeout at most. It returns an error when the group can't be joined, when
// membership is lost for good, and what Setup or Cleanup return. What the user gave
// and has not returned by then, a ConsumeClaim, Setup, Cleanup or Observer, is left
// behind, and the error is an ownership.ErrStuck; so it is when an Observer that
// does not return made the member leave. Without a Kafka broker it returns sarama's
// error (sarama.ErrOutOfBrokers) when it joins, for a topic that does not exist one
// that is sarama.ErrUnknownTopicOrPartition; without ZooKeeper it waits, and the log
// of the session says for whom.
//
// Members of a group may consume different topics; the package's page says what then
// becomes of a partition, and when all need the same.
//
// It may be called in a loop as sarama's. When the call ends before ctx does, by an
// error of Setup, the member stays in the group and waits for the next call, as sarama's
// does: its claims stand, those that the plan gives to others are released, new ones are
// claimed, and nothing is read. A next call with the same topics goes on from there; one
// with other topics leaves and joins again. When none comes within the timeout of the
// ZooKeeper session the member leaves, with a warning in the log; what goes wrong then is
// reported to Errors, and the next call joins again. When the membership is lost while it
// waits, the next call returns why, and the one after it joins again.
//
// It calls handler as sarama's cooperative groups do: Setup once, when this
// member has joined; ConsumeClaim for each partition that it comes to own, on a
// goroutine of its own, while others go on; Cleanup once at the end, when every
// ConsumeClaim has returned, if that is in time. The package's page says what
// differs.
//
// While one call runs, another returns ErrBusy; after Close it returns
// sarama.ErrClosedConsumerGroup.
func (g *Group) Consume(ctx context.Context, topics []string, handler sarama.ConsumerGroupHandler) error {
	if handler == nil {
		return errors.New("consumer: the handler is nil")
	}
	return g.runSession(ctx, topics, func(m *membership, s *consumeSession) sessionUser {
		return &groupSession{
			session: s, handler: handler, member: g.Name(), committer: m.committer, generation: m.generation,
			channelSize: g.settings.config.ChannelBufferSize,
		}
	})
}

// runSession checks topics and calls serve, as the one call that consumes.
func (g *Group) runSession(ctx context.Context, topics []string, user func(*membership, *consumeSession) sessionUser) error {
	if len(topics) == 0 {
		return errors.New("consumer: no topics given")
	}
	topics = slices.Compact(slices.Sorted(slices.Values(topics)))
	for _, topic := range topics {
		if err := session.CheckTopic(topic); err != nil {
			return fmt.Errorf("consumer: %w", err)
		}
	}
	ctx, done, err := g.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	return g.serve(ctx, topics, user)
}

// begin makes this the running Consume.
func (g *Group) begin(ctx context.Context) (context.Context, func(), error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, nil, sarama.ErrClosedConsumerGroup
	}
	if g.running != nil {
		return nil, nil, ErrBusy
	}
	ctx, stop := context.WithCancel(ctx)
	running := make(chan struct{})
	g.stop, g.running = stop, running
	return ctx, func() {
		stop()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.stop, g.running = nil, nil
		close(running)
	}, nil
}

// Close makes the member leave, in a Consume call or between two, waits until it has
// left and Consume has returned, StopTimeout at most, and closes Errors. It may be
// called more than once and from anywhere but the handler and the Observer: there it
// waits for itself, until that counts as stuck. It returns nil; what goes wrong is
// returned by Consume, or reported to Errors when none runs.
func (g *Group) Close() error {
	g.mu.Lock()
	g.closed = true
	stop, running := g.stop, g.running
	g.mu.Unlock()
	if running != nil {
		stop()
		<-running
	}
	if m := g.member(); m != nil { // it waits for another Consume
		m.leave(nil)
		<-m.done
		if g.forget(m) && m.err != nil {
			g.report(m.err) // it had ended by itself, and no call has returned that
		}
	}
	g.errs.close()
	return nil
}

// Errors returns the errors that no Consume returns, those of partitions as
// *sarama.ConsumerError, when Config.Consumer.Return.Errors is true; else they
// are logged. When nobody reads, the oldest are dropped and counted. Close closes
// the channel.
func (g *Group) Errors() <-chan error { return g.errs.ch }

// report hands an error to the user. It does not block.
func (g *Group) report(err error) {
	if g.settings.config.Consumer.Return.Errors {
		g.errs.put(err)
		return
	}
	g.settings.log.Error("consumer error", "error", err)
}

// member returns the membership, or nil.
func (g *Group) member() *membership {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.current
}

// forget lets go of m, which has left, and reports false if that was done before.
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
}

// open returns the open partitions.
func (g *Group) open() map[allocfn.Partition]*Partition {
	if m := g.member(); m != nil {
		if s := m.session(); s != nil {
			return s.opens()
		}
	}
	return nil
}

// Pause suspends fetching of those of the partitions that are open. Messages
// fetched before still come. A paused partition that is revoked and comes back
// is still paused. Like the other three it does not block, and moves nothing.
func (g *Group) Pause(partitions map[string][]int32) {
	open := g.open()
	for topic, ids := range partitions {
		for _, id := range ids {
			p := allocfn.Partition{Topic: topic, ID: id}
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
			g.pauses.set(allocfn.Partition{Topic: topic, ID: id}, false)
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
