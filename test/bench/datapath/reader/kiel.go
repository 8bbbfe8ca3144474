package main

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
	opts := consumer.Options{Config: saramaConfig()}
	if j.metrics {
		reg := prometheus.NewRegistry()
		defer scraped(reg)()
		opts.Registerer = reg
	}
	group, err := consumer.New(zk, j.brokers, j.group, opts)
	if err != nil {
		return err
	}
	return read(group)
}

// scrapeEvery is how often metrics are asked for, as often as by a server of Prometheus that is in a hurry.
const scrapeEvery = 5 * time.Second

// scraped asks reg for all metrics again and again, until stop is called.
func scraped(reg *prometheus.Registry) (stop func()) {
	ended, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(scrapeEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if _, err := reg.Gather(); err != nil {
					panic(err)
				}
			case <-ended:
				return
			}
		}
	}()
	return func() {
		close(ended)
		<-stopped
	}
}
