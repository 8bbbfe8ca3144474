// Package defaults_test uses package consumer as a first user does, with zero Options, against embedded servers.
package defaults_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/zktest"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	goleak.VerifyTestMain(m,
		// sarama counts fetches by topic in go-metrics' own registry, whatever its configuration says; all its meters share one
		// goroutine that never ends.
		goleak.IgnoreAnyFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
	)
}

// servers are a ZooKeeper and a Kafka in this process.
type servers struct {
	zookeeper []string
	kafka     []string
	cleanups  []func()
}

func (s *servers) Helper()                           {}
func (s *servers) Cleanup(f func())                  { s.cleanups = append(s.cleanups, f) }
func (s *servers) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (s *servers) close() {
	for _, f := range s.cleanups {
		f()
	}
}

// start starts servers whose topic orders has one partition with messages.
func start(messages ...string) *servers {
	s := &servers{}
	_, zk := zktest.Start(s, zktest.Options{})
	s.zookeeper = []string{zk}
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		panic(err)
	}
	s.Cleanup(kafka.Close)
	s.kafka = kafka.ListenAddrs()
	producer, err := kgo.NewClient(kgo.SeedBrokers(s.kafka...))
	if err != nil {
		panic(err)
	}
	defer producer.Close()
	for _, m := range messages {
		if err := producer.ProduceSync(context.Background(), &kgo.Record{Topic: "orders", Value: []byte(m)}).FirstErr(); err != nil {
			panic(err)
		}
	}
	return s
}

// join consumes with a group of opts until f returns.
func join(s *servers, opts consumer.Options, h sarama.ConsumerGroupHandler, f func()) {
	ctx, cancel := context.WithCancel(context.Background())
	group, err := consumer.NewGroup(s.zookeeper, s.kafka, "billing", opts)
	if err != nil {
		panic(err)
	}
	done := make(chan error)
	go func() { done <- group.Consume(ctx, []string{"orders"}, h) }()
	f()
	cancel()
	if err := <-done; err != nil {
		panic(err)
	}
	if err := group.Close(); err != nil {
		panic(err)
	}
}

// printer prints each message, marks it, and says when it has seen n.
type printer struct {
	n    int
	done chan struct{}
}

func (*printer) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*printer) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (p *printer) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for m := range c.Messages() {
		fmt.Printf("%s-%d@%d %s\n", m.Topic, m.Partition, m.Offset, m.Value)
		s.MarkMessage(m, "")
		if p.n--; p.n == 0 {
			close(p.done)
		}
	}
	return nil
}

// A group is used like one of sarama.
func ExampleGroup() {
	s := start("one", "two", "three")
	defer s.close()
	p := &printer{n: 3, done: make(chan struct{})}
	join(s, consumer.Options{}, p, func() { <-p.done })
	// Output:
	// orders-0@0 one
	// orders-0@1 two
	// orders-0@2 three
}

// An Observer is told what becomes of each partition.
func ExampleOptions_observer() {
	s := start("one", "two")
	defer s.close()
	p := &printer{n: 2, done: make(chan struct{})}
	opts := consumer.Options{
		Name: "anna",
		Observer: func(e consumer.Event) {
			switch e.Kind {
			case consumer.Claimed, consumer.Releasing:
				fmt.Printf("%s %s-%d\n", e.Kind, e.Topic, e.Partition)
			case consumer.Opened, consumer.Committed:
				fmt.Printf("%s %s-%d@%d\n", e.Kind, e.Topic, e.Partition, e.Offset)
			default: // Revoking, too, about when the last commit is made
			}
		},
		CommitInterval: time.Hour, // only at the end here
	}
	join(s, opts, p, func() { <-p.done })
	// Output:
	// claimed orders-0
	// committed orders-0@0
	// opened orders-0@0
	// orders-0@0 one
	// orders-0@1 two
	// committed orders-0@2
	// releasing orders-0
}

// fenced is a handler with a store that takes a token.
type fenced struct{ done chan struct{} }

func (fenced) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (fenced) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (f fenced) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	claim := c.(consumer.Claim)
	for m := range c.Messages() {
		if !claim.Trusted() {
			break // no effect on the outside now
		}
		fmt.Printf("store %q under a token: %t\n", m.Value, claim.Token() > 0)
		s.MarkMessage(m, "")
		close(f.done)
	}
	lost := errors.Is(context.Cause(claim.Context()), ownership.ErrLost)
	fmt.Println("lost:", lost) // or else revoked, and what is done now still counts
	return nil
}

// A claim is more than sarama's: it has a fencing token for stores that can refuse an old owner, and it tells revocation from
// loss.
func ExampleClaim() {
	s := start("one")
	defer s.close()
	f := fenced{done: make(chan struct{})}
	join(s, consumer.Options{}, f, func() { <-f.done })
	// Output:
	// store "one" under a token: true
	// lost: false
}
