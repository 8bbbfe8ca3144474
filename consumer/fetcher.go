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

// kafkaFetcher reads through sarama's PartitionConsumers, all on one client that
// does nothing else: what is on its connections waits for long polls.
type kafkaFetcher struct {
	client   sarama.Client
	control  sarama.Client
	consumer sarama.Consumer
	dialer   *kafkaconn.Dialer
	do       kafkaconn.Calls
	limit    int // of a partition's queue, in bytes

	mu   sync.Mutex
	last map[allocfn.Partition]*streamSource // opened last
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
	return &kafkaFetcher{
		client: client, control: control, consumer: consumer, dialer: d,
		limit: int(config.Consumer.Fetch.Default), last: map[allocfn.Partition]*streamSource{},
	}, nil
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

func (f *kafkaFetcher) open(ctx context.Context, p allocfn.Partition, offset int64, report func(error)) (source, error) {
	f.mu.Lock()
	last := f.last[p]
	f.mu.Unlock()
	if last != nil { // it was closed
		select {
		case <-last.ended:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return kafkaconn.Run(ctx, &f.do, func() (source, error) {
		pc, err := f.consumer.ConsumePartition(p.Topic, p.ID, offset)
		if err != nil {
			if !errors.Is(err, sarama.ErrOffsetOutOfRange) {
				_ = f.control.RefreshMetadata(p.Topic) // the next try finds the leader
			}
			return nil, err
		}
		s := newStreamSource(pc, offset, f.limit, f.do.Start, report)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.last[p] = s
		return s, nil
	}, source.Close) // nobody wants it any more
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
