package main

import (
	"context"
	"errors"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/session"
)

// readKiel reads through Group.Run.
func readKiel(ctx context.Context, j job) error {
	return withGroup(ctx, j, func(group *consumer.Group) error {
		err := group.Run(ctx, []string{j.topic}, func(_ context.Context, p *consumer.Partition) error {
			part := j.meter.part(p.ID())
			for m := range p.Messages() {
				part.take(m.Offset, m.Value)
				p.Mark(m)
			}
			return nil
		})
		return errors.Join(err, group.Close())
	})
}

// readKielSarama reads through sarama's interfaces.
func readKielSarama(ctx context.Context, j job) error {
	return withGroup(ctx, j, func(group *consumer.Group) error { return consume(ctx, group, j) })
}

// withGroup calls read with a group.
func withGroup(ctx context.Context, j job, read func(*consumer.Group) error) (err error) {
	zk, err := session.Start(ctx, j.zookeeper, session.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, zk.Close(context.WithoutCancel(ctx))) }()
	group, err := consumer.New(zk, j.brokers, j.group, consumer.Options{Config: saramaConfig()})
	if err != nil {
		return err
	}
	return read(group)
}
