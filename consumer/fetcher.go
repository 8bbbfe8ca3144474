package consumer

import (
	"context"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/fetch"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
)

// kafkaFetcher reads from Kafka on connections of its own. It asks another client for the leaders of partitions.
type kafkaFetcher struct {
	reading *fetch.Fetcher
	dialer  *kafkaconn.Dialer
	cluster fetch.Cluster
	stop    context.CancelFunc
	running kafkaconn.Calls
}

// newKafkaFetcher starts a fetcher, which reads until life ends or end is called.
func newKafkaFetcher(life context.Context, d *kafkaconn.Dialer, control sarama.Client, opts fetch.Options) (*kafkaFetcher, error) {
	opts.Dialer = d
	cluster := fetch.ClusterOf(control)
	reading, err := fetch.New(cluster, opts)
	if err != nil {
		return nil, err
	}
	life, stop := context.WithCancel(life)
	f := &kafkaFetcher{reading: reading, dialer: d, cluster: cluster, stop: stop}
	f.running.Start(func() { _ = reading.Run(life) }) // only a second Run fails
	return f, nil
}

// open opens a partition and waits until Kafka has accepted the position.
func (f *kafkaFetcher) open(ctx context.Context, p kiel.Partition, offset int64, leaderEpoch int32) (stream, error) {
	s, err := f.reading.Open(ctx, p.Topic, p.ID, offset, leaderEpoch)
	if err != nil {
		return nil, err
	}
	if err := s.Opened(ctx); err != nil {
		s.Close()
		return nil, err
	}
	s.CheckEnd(ctx, endWait) // handlers read it first of all
	return s, nil
}

// prepare connects to the leaders of partitions that are to be opened soon.
func (f *kafkaFetcher) prepare(ps []kiel.Partition) {
	for topic, ids := range byTopic(ps) {
		f.reading.Prepare(topic, ids)
	}
}

// ends asks the leaders of partitions for their ends. It returns nothing if ctx ends first.
func (f *kafkaFetcher) ends(ctx context.Context, ps []kiel.Partition) map[kiel.Partition]int64 {
	found, _ := kafkaconn.Run(ctx, &f.running, func() (map[kiel.Partition]int64, error) { return f.cluster.Ends(ps), nil }, nil)
	return found
}

// end stops the fetcher. It aborts the connections, so that a running dial or handshake ends.
func (f *kafkaFetcher) end() {
	f.stop()
	f.dialer.Abort()
	f.running.Wait()
	f.dialer.Wait()
}
