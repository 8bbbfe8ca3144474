package main

import (
	"context"
	"errors"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/session"
)

func readKielSarama(ctx context.Context, j job) (err error) {
	zk, err := session.Start(ctx, j.zookeeper, session.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, zk.Close(context.WithoutCancel(ctx))) }()
	group, err := consumer.New(zk, j.brokers, j.group, consumer.Options{Config: saramaConfig()})
	if err != nil {
		return err
	}
	return consume(ctx, group, j)
}
