package quickstart_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/session"
)

// quickstart:begin

func consume(ctx context.Context, zookeeper, kafka []string) error {
	zk, err := session.Start(ctx, zookeeper, session.Options{Logger: slog.Default()})
	if err != nil {
		return err
	}
	defer zk.Close(context.Background())
	group, err := consumer.New(zk, kafka, "billing", consumer.Options{Logger: slog.Default()})
	if err != nil {
		return err
	}
	defer group.Close()
	return group.Consume(ctx, []string{"orders"}, handler{}) // until ctx ends
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

// quickstart:end
