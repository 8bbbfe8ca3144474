package consumertest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/consumer/consumertest"
)

// A handler that stops at a poison message leaves it, and what is behind it, to the next call.
func Example() {
	handle := func(_ context.Context, p *consumer.Partition) error {
		for m := range p.Messages() {
			if string(m.Value) == "poison" {
				return errors.New("can't be read")
			}
			p.Mark(m)
		}
		return nil
	}
	p := consumertest.NewPartition(consumertest.Options{Topic: "orders"}, "good", "poison", "good")
	fmt.Println(p.Run(context.Background(), handle))
	offset, _ := p.Committed()
	fmt.Println("the next call begins at", offset)
	// Output:
	// kafka: error while consuming orders/0: consumer: the handler ended before its partition was revoked: can't be read
	// the next call begins at 1
}
