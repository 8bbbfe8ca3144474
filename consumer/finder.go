package consumer

import (
	"context"
	"errors"
	"sync"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
)

// finder asks Kafka for the names of all topics. It has a client of its own, which keeps the metadata of all topics. The other
// clients keep those of the consumed topics only.
type finder struct {
	connect func() (sarama.Client, error)

	mu     sync.Mutex
	client sarama.Client // nil before the first call of topics
}

// newFinder returns a finder, which connects at the first call of topics.
func newFinder(life context.Context, brokers *bootstrap, config sarama.Config, d *kafkaconn.Dialer) *finder {
	return &finder{connect: func() (sarama.Client, error) {
		all := kafkaconn.ControlConfig(config, d)
		all.Metadata.Full = true
		all.Metadata.RefreshFrequency = 0 // topics refreshes the metadata
		return brokers.connect(life, all)
	}}
}

// topics returns the names of the topics that Kafka has and that ACLs let this client describe. It blocks.
func (f *finder) topics() ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.client == nil {
		client, err := f.connect()
		if err != nil {
			return nil, err
		}
		f.client = client
	} else if err := f.client.RefreshMetadata(); err != nil && !ofSomeTopics(err) {
		return nil, err
	}
	return f.client.Topics()
}

// ofSomeTopics returns whether err concerns single topics: they have no leader, or ACLs refuse them. The other topics are
// described.
func ofSomeTopics(err error) bool {
	return errors.Is(err, sarama.ErrLeaderNotAvailable) || errors.Is(err, sarama.ErrReplicaNotAvailable) || errors.Is(err, sarama.ErrTopicAuthorizationFailed)
}

// close closes the connections. topics must not be called any more.
func (f *finder) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.client != nil {
		_ = f.client.Close()
	}
}
