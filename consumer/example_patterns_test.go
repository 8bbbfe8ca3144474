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

// Topics by patterns: audit, and all topics whose names begin with orders-, those too that are created later, but for those whose
// names begin with orders-test-.
func ExampleGroup_Run_patterns() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	zookeeper := []string{"zk1:2181", "zk2:2181", "zk3:2181"}
	kafka := []string{"kafka1:9092", "kafka2:9092"}
	if err := runPatterns(ctx, zookeeper, kafka); err != nil {
		log.Fatal(err)
	}
}

func runPatterns(ctx context.Context, zookeeper, kafka []string) error {
	group, err := consumer.NewGroup(zookeeper, kafka, "billing", consumer.Options{})
	if err != nil {
		return err
	}
	defer group.Close()
	topics := []string{"audit", "^orders-.*", "!^orders-test-.*"}
	return group.Run(ctx, topics, func(_ context.Context, p *consumer.Partition) error {
		for m := range p.Messages() {
			fmt.Println(p.Topic(), string(m.Value))
			p.Mark(m)
		}
		return nil
	})
}
