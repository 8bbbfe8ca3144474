package consumer

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
)

// fetcher opens partitions for reading. It is a seam: what fetches behind it
// can be replaced.
type fetcher interface {
	// open starts to read p at offset. It is sarama.ErrOffsetOutOfRange when
	// Kafka does not have it.
	open(ctx context.Context, p allocfn.Partition, offset int64) (stream, error)
	// close ends a stream that open returned, and takes what comes from Messages.
	// The caller goes on reading Errors. It does not wait: a later open of the same
	// partition does.
	close(p allocfn.Partition, s stream)
	// end gives up everything at once and returns when nothing is left.
	end()
}

// stream is one partition being read. Both channels must be read until they are
// closed; they close after AsyncClose, or by themselves when reading can't go on.
type stream interface {
	Messages() <-chan *sarama.ConsumerMessage
	Errors() <-chan *sarama.ConsumerError
	HighWaterMarkOffset() int64
	Pause()
	Resume()
	AsyncClose()
}

// kafkaFetcher reads through sarama's PartitionConsumers, all on one client that
// does nothing else: what is on its connections waits for long polls.
type kafkaFetcher struct {
	client   sarama.Client
	control  sarama.Client
	consumer sarama.Consumer
	dialer   *kafkaconn.Dialer
	do       kafkaconn.Calls

	mu      sync.Mutex
	closing map[allocfn.Partition]chan struct{}
}

func newKafkaFetcher(brokers []string, config *sarama.Config, d *kafkaconn.Dialer, control sarama.Client) (*kafkaFetcher, error) {
	client, err := sarama.NewClient(brokers, fetchConfig(*config, d))
	if err != nil {
		return nil, err
	}
	consumer, err := sarama.NewConsumerFromClient(pollClient{Client: client, control: control})
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	return &kafkaFetcher{client: client, control: control, consumer: consumer, dialer: d, closing: map[allocfn.Partition]chan struct{}{}}, nil
}

// pollClient asks for metadata and offsets on another client: a sarama.Broker
// does one thing at a time, so on this one each question would wait for the end
// of a long poll. Only who leads which partition comes from there; the connection
// to the leader is this client's own.
type pollClient struct {
	sarama.Client
	control sarama.Client
}

func (c pollClient) GetOffset(topic string, partition int32, at int64) (int64, error) {
	return c.control.GetOffset(topic, partition, at)
}

func (c pollClient) RefreshMetadata(topics ...string) error {
	return c.control.RefreshMetadata(topics...)
}

// Broker returns the follower that a leader has named to fetch from. The leader
// gives nothing out while it names one, so that one must be found even if it came,
// or moved, after this client has asked for metadata.
func (c pollClient) Broker(id int32) (*sarama.Broker, error) {
	own, err := c.Client.Broker(id)
	if err == nil && !c.moved(own) {
		return own, nil
	}
	topics, err := c.Topics() // an answer for one of them names all brokers
	if err == nil && len(topics) > 0 {
		err = c.Client.RefreshMetadata(topics[0])
	}
	if err != nil {
		return nil, err
	}
	return c.Client.Broker(id)
}

// moved says whether the control client knows the broker at another address.
func (c pollClient) moved(b *sarama.Broker) bool {
	return slices.ContainsFunc(c.control.Brokers(), func(o *sarama.Broker) bool { return o.ID() == b.ID() && o.Addr() != b.Addr() })
}

func (c pollClient) LeaderAndEpoch(topic string, partition int32) (*sarama.Broker, int32, error) {
	leader, epoch, err := c.control.LeaderAndEpoch(topic, partition)
	if err != nil {
		return nil, 0, err
	}
	if own, err := c.Client.Broker(leader.ID()); err == nil && own.Addr() == leader.Addr() {
		return own, epoch, nil
	}
	if err := c.Client.RefreshMetadata(topic); err != nil { // a broker that is new, or has moved
		return nil, 0, err
	}
	own, err := c.Client.Broker(leader.ID())
	return own, epoch, err
}

func (f *kafkaFetcher) open(ctx context.Context, p allocfn.Partition, offset int64) (stream, error) {
	f.mu.Lock()
	closing := f.closing[p]
	f.mu.Unlock()
	if closing != nil {
		select {
		case <-closing:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	pc, err := kafkaconn.Run(ctx, &f.do, func() (sarama.PartitionConsumer, error) {
		pc, err := f.consumer.ConsumePartition(p.Topic, p.ID, offset)
		if err != nil && !errors.Is(err, sarama.ErrOffsetOutOfRange) {
			_ = f.control.RefreshMetadata(p.Topic) // the next try finds the leader
		}
		return pc, err
	}, func(pc sarama.PartitionConsumer) { // nobody wants it any more
		f.close(p, pc)
		for range pc.Errors() {
		}
	})
	if err != nil {
		return nil, err
	}
	return pc, nil
}

func (f *kafkaFetcher) close(p allocfn.Partition, s stream) {
	closed := make(chan struct{})
	f.mu.Lock()
	f.closing[p] = closed
	f.mu.Unlock()
	s.AsyncClose()
	f.do.Start(func() {
		defer close(closed)
		for range s.Messages() {
		}
	})
}

// end closes the connections first: an idle partition closes at the end of its
// long poll, and the poll ends with its connection.
func (f *kafkaFetcher) end() {
	f.dialer.Abort()
	f.do.Wait()
	_ = f.consumer.Close()
	_ = f.client.Close()
	f.dialer.Wait()
}
