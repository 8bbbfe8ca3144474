package consumer

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
)

// maxClusterID is the length of the longest id of a cluster that counts. Kafka's own ids have 22 characters; other servers of
// its protocol answer with other texts.
const maxClusterID = 128

// clusterID is the id of the Kafka cluster, as the newest answer has it. Its zero value is unknown.
type clusterID struct{ newest atomic.Pointer[string] }

// String returns the id, "" while it is unknown.
func (c *clusterID) String() string {
	if id := c.newest.Load(); id != nil {
		return *id
	}
	return ""
}

// answered stores the id of an answer. An answer without one that counts leaves the id as it is.
func (c *clusterID) answered(id *string) {
	if id != nil && countsAsClusterID(*id) {
		c.newest.Store(id)
	}
}

// countsAsClusterID returns whether id can be the id of a cluster: it is not empty or too long, and has visible ASCII characters
// alone, because it is written into ZooKeeper, Kafka and logs.
func countsAsClusterID(id string) bool {
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return id != "" && len(id) <= maxClusterID
}

// identify asks Kafka for the cluster's id alone. It blocks.
func (k *kafka) identify() error {
	broker := k.client.LeastLoadedBroker()
	if broker == nil {
		return sarama.ErrOutOfBrokers
	}
	// An empty list would ask for all topics. Every cluster has this one, and what the answer says of it does not matter.
	req := sarama.NewMetadataRequest(k.client.Config().Version, []string{offsetsTopic})
	req.AllowAutoTopicCreation = false
	resp, err := broker.GetMetadata(req)
	if err != nil {
		_ = broker.Close()
		return err
	}
	k.cluster.answered(resp.ClusterID)
	return nil
}

// clusterID returns the id of the Kafka cluster, "" if it is unknown: the servers have none, or one that does not count. It is
// known before the member joins. It does not block.
func (m *membership) clusterID() string {
	if m.kafka == nil {
		return ""
	}
	return m.kafka.cluster.String()
}

// learnCluster asks for the cluster's id if no topic has been described, as when patterns find none.
func (m *membership) learnCluster(ctx context.Context) error {
	if m.clusterID() != "" || len(m.catalog.known()) > 0 {
		return nil
	}
	_, err := kafkaconn.Run(ctx, &m.kafka.do, func() (struct{}, error) { return struct{}{}, m.kafka.identify() }, nil)
	if err != nil {
		return fmt.Errorf("consumer: ask for the cluster's id: %w", err)
	}
	return nil
}
