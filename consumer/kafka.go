package consumer

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/fetch"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/topics"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/pause"
)

// kafka is the Kafka side of a membership. It has two sets of connections: those of client, for commits, offsets and metadata,
// and those of the fetcher, on which a request would wait for long polls. With patterns the finder makes a third client.
type kafka struct {
	client  sarama.Client
	brokers *bootstrap
	dialer  *kafkaconn.Dialer // opens the connections of client
	offsets *offsets.KafkaStore
	fetcher *kafkaFetcher
	do      kafkaconn.Calls
	finder  *topics.Finder
	cluster clusterID

	identified atomic.Int64 // the dialer's Dials when the coordinator was asked for the cluster's id
}

// newKafka makes the client and starts the fetcher. Both connect when they are used. Everything ends with life; end must be
// called after that. timeout is that of the ZooKeeper session. newKafka sets the configuration and the dialer of fetching. reach
// is notified of answers and failures on the connections.
func newKafka(
	life context.Context, brokers *bootstrap, group string, config *sarama.Config, timeout time.Duration, fetching fetch.Options, reach *kafkaconn.Reach,
) (*kafka, error) {
	k := &kafka{brokers: brokers, dialer: kafkaconn.NewDialer(life, config, timeout/4)}
	k.dialer.Reach = reach
	connect := func(c *sarama.Config) (sarama.Client, error) { return brokers.connect(life, c) }
	k.finder = topics.NewFinder(connect, kafkaconn.ControlConfig(*config, k.dialer))
	client, err := brokers.connect(life, kafkaconn.ControlConfig(*config, k.dialer))
	if err != nil {
		return nil, failure("connect to Kafka", "", err)
	}
	k.client = client
	fetching.Config = config
	reading := kafkaconn.NewDialer(life, config, 0)
	reading.Reach = reach
	k.fetcher, err = newKafkaFetcher(life, reading, client, fetching)
	if err != nil {
		_ = client.Close()
		return nil, failure("connect to Kafka", "", err)
	}
	k.offsets = &offsets.KafkaStore{Group: group, Config: config, Calls: &k.do, Gate: k.dialer.Gate, Find: func(again bool) (offsets.Coordinator, error) {
		return k.coordinator(group, again)
	}}
	return k, nil
}

// abortCommits aborts the connections that carry commits. Bytes that were written and not sent are dropped.
func (k *kafka) abortCommits() { k.dialer.Abort() }

// end closes all connections and returns when they are closed.
func (k *kafka) end() {
	k.dialer.Abort()
	k.fetcher.end()
	k.do.Wait()
	_ = k.client.Close()
	k.finder.Close()
	k.dialer.Wait()
}

// endUntil is end, but abandons connections that are not closed closingGrace after the deadline: the user's dialer may not
// return.
func (k *kafka) endUntil(deadline context.Context) error {
	deadline, stop := pause.Outlast(deadline, closingGrace)
	defer stop()
	var closing kafkaconn.Calls
	closing.Start(k.end)
	if !kafkaconn.Await(deadline, closing.Ended()) {
		return stuck("the connections to Kafka did not close in time")
	}
	return nil
}

// logOffset returns the offset of the first message of p, or the one after the last.
func (k *kafka) logOffset(ctx context.Context, p kiel.Partition, from StartAt) (int64, error) {
	at := sarama.OffsetOldest
	if from == Latest {
		at = sarama.OffsetNewest
	}
	return k.listOffset(ctx, p, at)
}

// at returns the offset of the first message of p whose timestamp is t or later; -1 if there is none.
func (k *kafka) at(ctx context.Context, p kiel.Partition, t time.Time) (int64, error) {
	return k.listOffset(ctx, p, max(t.UnixMilli(), 0)) // Kafka gives negative numbers other meanings
}

func (k *kafka) listOffset(ctx context.Context, p kiel.Partition, at int64) (int64, error) {
	return kafkaconn.Run(ctx, &k.do, func() (int64, error) { return k.client.GetOffset(p.Topic, p.ID, at) }, nil)
}

// describe asks Kafka for the descriptions of topics, and refreshes the client's metadata. The answer also has the cluster's id.
func (k *kafka) describe(names []string) (map[string]topics.Info, error) {
	known := k.client.RefreshMetadata(names...)
	if errors.Is(known, sarama.ErrOutOfBrokers) {
		// The request below would return the error of one broker alone.
		if k.cluster.String() == "" { // no broker has answered yet
			known = explainLogin(known, k.brokers.list(), k.client.Config())
		}
		return nil, known
	}
	broker := k.client.LeastLoadedBroker()
	if broker == nil {
		if known == nil {
			known = sarama.ErrOutOfBrokers
		}
		return nil, known
	}
	req := sarama.NewMetadataRequest(k.client.Config().Version, names)
	req.AllowAutoTopicCreation = false
	resp, err := broker.GetMetadata(req)
	if err != nil {
		_ = broker.Close()
		return nil, err
	}
	k.cluster.answered(resp.ClusterID)
	return topics.Infos(resp), nil
}

// create has Kafka create topics. It returns what a broker refuses; a broker that creates no topics answers as one that is about
// to. It blocks.
func (k *kafka) create(names []string) error {
	broker := k.client.LeastLoadedBroker()
	if broker == nil {
		return sarama.ErrOutOfBrokers
	}
	req := sarama.NewMetadataRequest(k.client.Config().Version, names)
	req.AllowAutoTopicCreation = true
	resp, err := broker.GetMetadata(req)
	if err != nil {
		_ = broker.Close()
		return err
	}
	var errs []error
	for _, t := range resp.Topics {
		switch t.Err {
		case sarama.ErrNoError, sarama.ErrLeaderNotAvailable, sarama.ErrUnknownTopicOrPartition:
		default:
			errs = append(errs, operr.New("", "create topic", t.Name, t.Err))
		}
	}
	return errors.Join(errs...)
}

// leaderPending reports whether err says that a partition's leader is not known or not ready, which may change until the next
// attempt. sarama's groups retry after the same errors.
func leaderPending(err error) bool {
	return slices.ContainsFunc([]error{
		sarama.ErrLeaderNotAvailable, sarama.ErrNotLeaderForPartition, sarama.ErrFencedLeaderEpoch, sarama.ErrUnknownLeaderEpoch,
		sarama.ErrReplicaNotAvailable, sarama.ErrNotConnected,
	}, func(one error) bool { return errors.Is(err, one) })
}
