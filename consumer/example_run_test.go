package consumer_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/kielgo/kiel/consumer"
)

// A whole program without sarama's interfaces: it prints what comes in the topic orders, until it is told to end. It ends with
// the first error of the handler; with Options.ReopenPartition it would go on.
func ExampleGroup_Run() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	zookeeper := []string{"zk1:2181", "zk2:2181", "zk3:2181"}
	kafka := []string{"kafka1:9092", "kafka2:9092"}
	if err := run(ctx, zookeeper, kafka); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, zookeeper, kafka []string) error {
	group, err := consumer.NewGroup(zookeeper, kafka, "billing", consumer.Options{})
	if err != nil {
		return err
	}
	defer group.Close()
	return group.Run(ctx, []string{"orders"}, func(_ context.Context, p *consumer.Partition) error {
		for m := range p.Messages() { // ends when the partition is another member's, or this one leaves
			if _, err := fmt.Println(string(m.Value)); err != nil {
				return err // ends Run
			}
			p.Mark(m)
		}
		return nil
	})
}
