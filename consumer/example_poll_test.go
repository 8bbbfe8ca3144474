package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
)

// A program that stores up to 100 messages at once, and what has come after half a second at the latest. What can't be stored is
// read again after a pause: Seek goes back to it.
func ExamplePartition_Poll() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	zookeeper := []string{"zk1:2181", "zk2:2181", "zk3:2181"}
	kafka := []string{"kafka1:9092", "kafka2:9092"}
	if err := storeOrders(ctx, zookeeper, kafka); err != nil {
		log.Fatal(err)
	}
}

func storeOrders(ctx context.Context, zookeeper, kafka []string) error {
	group, err := consumer.NewGroup(zookeeper, kafka, "billing", consumer.Options{})
	if err != nil {
		return err
	}
	defer group.Close()
	return group.Run(ctx, []string{"orders"}, func(ctx context.Context, p *consumer.Partition) error {
		for {
			orders, err := gather(ctx, p)
			if err != nil {
				return err // the partition is another member's, or this one leaves
			}
			if len(orders) == 0 {
				continue
			}
			if store(orders) == nil {
				p.Mark(&orders[len(orders)-1])
				continue
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			if err := p.Seek(ctx, orders[0].Offset); err != nil {
				return err
			}
		}
	})
}

// gather returns up to 100 messages. Each Poll returns what is there of one batch.
func gather(ctx context.Context, p *consumer.Partition) (orders []sarama.ConsumerMessage, err error) {
	soon, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	for len(orders) < 100 {
		ms, err := p.Poll(soon, 100-len(orders))
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return orders, nil
		}
		if err != nil {
			return nil, err
		}
		orders = append(orders, ms...)
	}
	return orders, nil
}

// store stands for a statement that inserts many rows.
func store(orders []sarama.ConsumerMessage) error {
	for _, m := range orders {
		if _, err := fmt.Println(string(m.Value)); err != nil {
			return err
		}
	}
	return nil
}
