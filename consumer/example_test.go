package consumer_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
)

// A whole program: it prints what comes in the topic orders until it is told to end. Processes of the program share the
// partitions of the topic.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	zookeeper := []string{"zk1:2181", "zk2:2181", "zk3:2181"}
	kafka := []string{"kafka1:9092", "kafka2:9092"}
	if err := consume(ctx, zookeeper, kafka); err != nil {
		log.Fatal(err)
	}
}

func consume(ctx context.Context, zookeeper, kafka []string) error {
	group, err := consumer.NewGroup(zookeeper, kafka, "billing", consumer.Options{})
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
