package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/session"
)

// A whole program: it prints what comes in the topic orders until it is told to end. Processes of the program share the
// partitions of the topic.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	zookeeper := []string{"zk1:2181", "zk2:2181", "zk3:2181"}
	kafka := []string{"kafka1:9092", "kafka2:9092"}
	err := consume(ctx, zookeeper, kafka)
	if err != nil && !errors.Is(err, context.Canceled) { // Start returns such an error if the signal comes while it waits
		log.Fatal(err)
	}
}

func consume(ctx context.Context, zookeeper, kafka []string) error {
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
	for err == nil && ctx.Err() == nil { // as with sarama, though a rebalance does not end Consume
		err = group.Consume(ctx, []string{"orders"}, handler{})
	}
	return err
}

type handler struct{} // any sarama.ConsumerGroupHandler

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (handler) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for m := range c.Messages() {
		fmt.Println(string(m.Value))
		s.MarkMessage(m, "")
	}
	return nil
}
