package topics

import (
	"errors"
	"sync"

	"github.com/IBM/sarama"
)

// Finder asks Kafka for the names of all topics. It has a client of its own, which keeps the metadata of all topics. The other
// clients keep those of the consumed topics only.
type Finder struct {
	connect func() (sarama.Client, error)

	mu     sync.Mutex
	client sarama.Client // nil before the first call of Topics
}

// NewFinder returns a Finder, which makes its client by connect when it is used first. Config is that client's configuration.
func NewFinder(connect func(config *sarama.Config) (sarama.Client, error), config *sarama.Config) *Finder {
	config.Metadata.Full = true
	config.Metadata.RefreshFrequency = 0 // Topics refreshes the metadata
	return &Finder{connect: func() (sarama.Client, error) { return connect(config) }}
}

// Topics returns the names of the topics that Kafka has and that ACLs let this client describe. It blocks.
func (f *Finder) Topics() ([]string, error) {
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

// ofSomeTopics reports whether err concerns single topics: they have no leader, or ACLs refuse them. The other topics are
// described.
func ofSomeTopics(err error) bool {
	return errors.Is(err, sarama.ErrLeaderNotAvailable) || errors.Is(err, sarama.ErrReplicaNotAvailable) || errors.Is(err, sarama.ErrTopicAuthorizationFailed)
}

// Close closes the connections. Topics must not be called any more.
func (f *Finder) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.client != nil {
		_ = f.client.Close()
	}
}
