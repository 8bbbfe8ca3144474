package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func readFranz(ctx context.Context, j job) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(j.brokers...), kgo.ConsumerGroup(j.group), kgo.ConsumeTopics(j.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.AutoCommitMarks(), kgo.AutoCommitInterval(time.Second), kgo.DisableClientMetrics(),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		fetches.EachError(func(topic string, id int32, err error) {
			if ctx.Err() == nil {
				j.meter.fail(fmt.Errorf("fetch %s:%d: %w", topic, id, err))
			}
		})
		fetches.EachPartition(func(fetched kgo.FetchTopicPartition) {
			part := j.meter.part(fetched.Partition)
			for _, r := range fetched.Records {
				part.take(r.Offset, r.Value)
			}
			client.MarkCommitRecords(fetched.Records...)
		})
	}
	return client.CommitMarkedOffsets(context.WithoutCancel(ctx))
}
