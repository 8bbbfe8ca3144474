package fetch

import (
	"maps"
	"slices"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
)

// Node is a broker.
type Node struct {
	ID   int32
	Addr string
}

// Cluster has the leaders of partitions. Its methods may block; a Fetcher calls them in goroutines of their own, two at a time at
// most.
type Cluster interface {
	// Refresh asks Kafka for the metadata of topics.
	Refresh(topics []string) error
	// Leader returns the leader of a partition, and the leader's epoch, as last known.
	Leader(topic string, partition int32) (Node, int32, error)
	// Node returns a broker, and false if it is not known.
	Node(id int32) (Node, bool)
	// Range returns the offset of the first message of a partition and the one after the last.
	Range(topic string, partition int32) (start, end int64, err error)
	// Ends returns the offsets after the last readable messages of partitions, by one request to each of their leaders, and
	// another one to leaders that have moved. Partitions for which there is no answer are missing.
	Ends(ps []kiel.Partition) map[kiel.Partition]int64
}

// ClusterOf returns a Cluster that asks a client. A Fetcher fetches on connections of its own, so requests of the client never
// wait for a long poll.
func ClusterOf(client sarama.Client) Cluster { return clientCluster{client} }

type clientCluster struct{ client sarama.Client }

func (c clientCluster) Refresh(topics []string) error { return c.client.RefreshMetadata(topics...) }

func (c clientCluster) Leader(topic string, partition int32) (Node, int32, error) {
	b, epoch, err := c.client.LeaderAndEpoch(topic, partition)
	if err != nil {
		return Node{}, -1, err
	}
	return Node{ID: b.ID(), Addr: b.Addr()}, epoch, nil
}

func (c clientCluster) Node(id int32) (Node, bool) {
	brokers := c.client.Brokers()
	i := slices.IndexFunc(brokers, func(b *sarama.Broker) bool { return b.ID() == id })
	if i < 0 {
		return Node{}, false
	}
	return Node{ID: id, Addr: brokers[i].Addr()}, true
}

func (c clientCluster) Range(topic string, partition int32) (start, end int64, err error) {
	if start, err = c.client.GetOffset(topic, partition, sarama.OffsetOldest); err != nil {
		return 0, 0, err
	}
	end, err = c.client.GetOffset(topic, partition, sarama.OffsetNewest)
	return start, end, err
}

// Ends asks once more, with fresh metadata, for what the leaders that the client knows do not answer.
func (c clientCluster) Ends(ps []kiel.Partition) map[kiel.Partition]int64 {
	open := map[kiel.Partition]int64{}
	for _, p := range ps {
		open[p] = sarama.OffsetNewest
	}
	out := map[kiel.Partition]int64{}
	c.addEnds(out, open)
	missing := map[string]bool{}
	for p := range open {
		missing[p.Topic] = true
	}
	if len(missing) > 0 && c.client.RefreshMetadata(slices.Collect(maps.Keys(missing))...) == nil {
		c.addEnds(out, open)
	}
	return out
}

// addEnds asks the leaders for the ends of open partitions, and moves those that are answered to out.
func (c clientCluster) addEnds(out, open map[kiel.Partition]int64) {
	for p, l := range kafkaconn.ListOffsets(c.client, c.client.Config().Consumer.IsolationLevel, open) {
		if l.Err == nil && l.Offset >= 0 {
			out[p] = l.Offset
			delete(open, p)
		}
	}
}
