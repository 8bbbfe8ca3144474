package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/offsets"
)

// clusterID is the id of the Kafka cluster, as the newest answer has it. Its zero value is unknown.
type clusterID struct{ newest atomic.Pointer[string] }

// String returns the id, "" while it is unknown.
func (c *clusterID) String() string {
	if id := c.newest.Load(); id != nil {
		return *id
	}
	return ""
}

// answered stores the id of an answer. An answer without one, or with a text that can't be allocator's Options.Cluster, leaves
// the id as it is.
func (c *clusterID) answered(id *string) {
	if id != nil && allocator.IsCluster(*id) {
		c.newest.Store(id)
	}
}

// identify asks Kafka for the cluster's id alone. It blocks.
func (k *kafka) identify() error {
	if broker := k.client.LeastLoadedBroker(); broker != nil {
		return k.identifyBy(broker)
	}
	return sarama.ErrOutOfBrokers
}

// identifyBy asks a broker for the cluster's id. It blocks.
func (k *kafka) identifyBy(broker *sarama.Broker) error {
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

// coordinator returns the group's coordinator; with again it asks Kafka anew. If connections were opened since the last call, it
// first asks the coordinator for the cluster's id: by then the brokers' names may lead to another cluster. It blocks.
func (k *kafka) coordinator(group string, again bool) (offsets.Coordinator, error) {
	if again {
		if err := k.client.RefreshCoordinator(group); err != nil {
			return nil, err
		}
	}
	broker, err := k.client.Coordinator(group)
	if err != nil {
		return nil, err
	}
	if up, _ := broker.Connected(); !up { // it has waited for the dial; the request returns why there is no connection
		return broker, nil
	}
	if dials := k.dialer.Dials(); dials != k.identified.Load() {
		if err := k.identifyBy(broker); err != nil {
			return nil, err
		}
		k.identified.Store(dials)
	}
	return broker, nil
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
	if m.clusterID() != "" || m.catalog.Knows() {
		return nil
	}
	_, err := kafkaconn.Run(ctx, &m.kafka.do, func() (struct{}, error) { return struct{}{}, m.kafka.identify() }, nil)
	if err != nil {
		return failure("ask for the cluster's id", "", err)
	}
	return nil
}

// clusterChangedError is an ErrOtherCluster: the brokers answer with another id than when the member joined.
type clusterChangedError struct{ was, is string }

func (e *clusterChangedError) Error() string {
	return fmt.Sprintf("%v: Kafka had the cluster id %q when this member joined, and has %q now", ErrOtherCluster, e.was, e.is)
}

// Unwrap returns ErrOtherCluster.
func (e *clusterChangedError) Unwrap() error { return ErrOtherCluster }

// isElsewhere reports whether the cluster's id is not that in the member's record any more: the brokers' names lead to another
// cluster now, or the cluster was made anew. The member's positions mean nothing there, so nothing is committed to it.
// isElsewhere does not block.
func (m *membership) isElsewhere() bool { return m.cluster != "" && m.clusterID() != m.cluster }

// checkCluster makes the member leave if isElsewhere. The next call joins with the new id, if no member has the old one.
func (m *membership) checkCluster() {
	if m.isElsewhere() {
		m.leave(&clusterChangedError{m.cluster, m.clusterID()})
	}
}

// clusterFault returns the clusterChangedError for which the member has left, or the errClientClosed, or nil.
func (m *membership) clusterFault() error {
	why := context.Cause(m.ctx)
	if e, ok := errors.AsType[*clusterChangedError](why); ok {
		return failure("", "", e)
	}
	if errors.Is(why, errClientClosed) {
		return errClientClosed
	}
	return nil
}
