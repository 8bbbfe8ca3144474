package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// saramaConfig is sarama's default, but for the protocol and the start, which are those of the other clients.
func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Interval = time.Second
	return config
}

func readPartitions(ctx context.Context, j job) (err error) {
	consumer, err := sarama.NewConsumer(j.brokers, saramaConfig())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, consumer.Close()) }()
	var readers sync.WaitGroup
	defer readers.Wait()
	for i := range j.meter.parts {
		part := &j.meter.parts[i]
		messages, err := consumer.ConsumePartition(j.topic, part.id, sarama.OffsetOldest)
		if err != nil {
			j.meter.fail(err) // which ends the others
			break
		}
		context.AfterFunc(ctx, messages.AsyncClose)
		readers.Go(func() {
			for m := range messages.Messages() {
				part.take(m.Offset, m.Value)
			}
		})
	}
	return nil
}

func readSaramaGroup(ctx context.Context, j job) error {
	group, err := sarama.NewConsumerGroup(j.brokers, j.group, saramaConfig())
	if err != nil {
		return err
	}
	return consume(ctx, group, j)
}

// consume runs a group of sarama's interfaces.
func consume(ctx context.Context, group sarama.ConsumerGroup, j job) error {
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{j.topic}, handler{j.meter}); err != nil && ctx.Err() == nil {
			return errors.Join(err, group.Close())
		}
	}
	return group.Close()
}

// handler counts and marks each message.
type handler struct{ meter *meter }

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	part := h.meter.part(claim.Partition())
	for m := range claim.Messages() {
		part.take(m.Offset, m.Value)
		session.MarkMessage(m, "")
	}
	return nil
}
