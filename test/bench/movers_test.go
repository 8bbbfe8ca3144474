package bench_test

import (
	"context"
	"log/slog"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/test/bench/moves"
)

// moveClient starts what consumes as a member, and returns what ends it and waits for that. Each client has its own settings, but
// for these: it begins with new messages, marks each when it is handled, and has committed what was marked before a partition is
// given up, as its documentation says.
type moveClient func(m *mover, w *moving) (stop func() error, err error)

var moveClients = map[moves.Client]moveClient{
	moves.Kiel:              runMember,
	moves.KielEager:         kielMember,
	moves.SaramaEager:       saramaMember(nil),
	moves.SaramaCooperative: saramaMember(sarama.NewBalanceStrategyCooperativeSticky()),
	moves.FranzCooperative:  franzMember(kgo.Balancers(kgo.CooperativeStickyBalancer())),
	moves.FranzServer:       franzMember(kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer()),
}

func moveConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetNewest
	return config
}

func kielOptions(m *mover) consumer.Options {
	opts := consumer.Options{Name: m.name, Config: moveConfig(), StartAt: consumer.Latest, Logger: slog.New(&steplog{m: m})}
	opts.Session.Timeout = *sessionTimeout
	return opts
}

// runMember consumes with Run.
func runMember(m *mover, w *moving) (func() error, error) {
	group, err := consumer.NewGroup(w.zookeeper, w.kafka, w.group, kielOptions(m))
	if err != nil {
		return nil, err
	}
	return m.until(func(ctx context.Context) error { return group.Run(ctx, []string{topic}, m.handle) }, group.Close), nil
}

func (m *mover) handle(_ context.Context, p *consumer.Partition) error {
	m.of.opened(m, p.ID())
	for msg := range p.Messages() {
		m.of.got(m, msg.Partition, msg.Offset)
		p.Mark(msg)
	}
	return nil
}

// kielMember consumes through sarama's API. Its sessions end at each rebalance, as sarama's do unless all strategies are
// cooperative.
func kielMember(m *mover, w *moving) (func() error, error) {
	group, err := consumer.NewGroup(w.zookeeper, w.kafka, w.group, kielOptions(m))
	return consumeWith(m, group, err)
}

func saramaMember(strategy sarama.BalanceStrategy) moveClient {
	return func(m *mover, w *moving) (func() error, error) {
		config := moveConfig()
		if strategy != nil {
			config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy}
		}
		group, err := sarama.NewConsumerGroup(w.kafka, w.group, config)
		return consumeWith(m, group, err)
	}
}

func consumeWith(m *mover, group sarama.ConsumerGroup, err error) (func() error, error) {
	if err != nil {
		return nil, err
	}
	return m.until(func(ctx context.Context) error {
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{topic}, saramaHandler{m}); err != nil && ctx.Err() == nil {
				return err
			}
		}
		return nil
	}, group.Close), nil
}

// saramaHandler is the handler of a mover.
type saramaHandler struct{ m *mover }

func (saramaHandler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (saramaHandler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h saramaHandler) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	h.m.of.opened(h.m, c.Partition())
	for {
		select {
		case msg, ok := <-c.Messages():
			if !ok {
				return nil
			}
			h.m.of.got(h.m, msg.Partition, msg.Offset)
			s.MarkMessage(msg, "")
		case <-s.Context().Done():
			return nil
		}
	}
}

func franzMember(opts ...kgo.Opt) moveClient {
	return func(m *mover, w *moving) (func() error, error) {
		client, err := kgo.NewClient(append([]kgo.Opt{
			kgo.SeedBrokers(w.kafka...), kgo.ConsumerGroup(w.group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()),
			kgo.AutoCommitMarks(), kgo.BlockRebalanceOnPoll(), kgo.DisableClientMetrics(),
			kgo.OnPartitionsRevoked(func(ctx context.Context, c *kgo.Client, _ map[string][]int32) {
				if err := c.CommitMarkedOffsets(ctx); err != nil {
					w.t.Errorf("%s: commit: %v", m.name, err)
				}
			}),
		}, opts...)...)
		if err != nil {
			return nil, err
		}
		return m.until(func(ctx context.Context) error {
			for ctx.Err() == nil {
				client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
					m.of.got(m, r.Partition, r.Offset)
					client.MarkCommitRecords(r)
				})
				client.AllowRebalance()
			}
			return nil
		}, func() error { client.CloseAllowingRebalance(); return nil }), nil
	}
}

// until runs consume, and returns a function that ends it and then closes what it used.
func (m *mover) until(consume func(context.Context) error, closeIt func() error) func() error {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- consume(ctx) }()
	return func() error {
		stop()
		if err := <-done; err != nil {
			return err
		}
		return closeIt()
	}
}
