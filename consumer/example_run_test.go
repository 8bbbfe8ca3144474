package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/session"
)

// The same without sarama's interfaces: a function gets the partitions, and the messages by a loop.
func ExampleGroup_Run() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	zookeeper := []string{"zk1:2181", "zk2:2181", "zk3:2181"}
	kafka := []string{"kafka1:9092", "kafka2:9092"}
	err := run(ctx, zookeeper, kafka)
	if err != nil && !errors.Is(err, context.Canceled) { // Start returns such an error if the signal comes while it waits
		log.Fatal(err)
	}
}

func run(ctx context.Context, zookeeper, kafka []string) error {
	zk, err := session.Start(ctx, zookeeper, session.Options{})
	if err != nil {
		return err
	}
	defer zk.Close(context.WithoutCancel(ctx))
	group, err := consumer.New(zk, kafka, "billing", consumer.Options{})
	if err != nil {
		return err
	}
	defer group.Close()
	return group.Run(ctx, []string{"orders"}, func(_ context.Context, p *consumer.Partition) error {
		for m := range p.Messages() { // ends when the partition is another member's, or this one leaves
			if _, err := fmt.Println(string(m.Value)); err != nil {
				return err // the partition is opened again after a pause, at this message
			}
			p.Mark(m)
		}
		return nil
	})
}
