package consumer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// ofClient makes a Group of a client of sarama, with a session of its own, and what ends both.
func (r *rig) ofClient(brokers []string, config *sarama.Config, opts consumer.Options) (*consumer.Group, sarama.Client, func() error) {
	r.t.Helper()
	client, err := sarama.NewClient(brokers, config)
	if err != nil {
		r.t.Fatal(err)
	}
	zk, err := session.Start(r.t.Context(), []string{zktest.VirtualAddress}, session.Options{Dial: r.zknet.Client("a").Dial})
	if err != nil {
		r.t.Fatal(err)
	}
	g, err := consumer.NewFromClient(zk, client, group, opts)
	if err != nil {
		r.t.Fatal(err)
	}
	return g, client, func() error { return errors.Join(g.Close(), zk.Close(r.t.Context())) }
}

// A Group of NewFromClient ends its call in order when the client is closed, and takes no other, as a group of sarama does.
func TestClientIsClosed(t *testing.T) {
	errSetup := errors.New("setup")
	for name, call := range map[string]func(context.Context, *consumer.Group, *recorder) error{
		"Consume": func(ctx context.Context, g *consumer.Group, h *recorder) error {
			return g.Consume(ctx, []string{topic}, h)
		},
		"Run": func(ctx context.Context, g *consumer.Group, h *recorder) error {
			return g.Run(ctx, []string{topic}, h.handle)
		},
		"between two calls": func(ctx context.Context, g *consumer.Group, _ *recorder) error {
			return g.Consume(ctx, []string{topic}, funcs{setup: func(sarama.ConsumerGroupSession) error { return errSetup }})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 1, func(t *testing.T, r *rig) {
				r.produce(5, 0)
				g, client, end := r.ofClient(r.kafka.ListenAddrs(), r.config(), consumer.Options{})
				h, want, committed := &recorder{done: func(*sarama.ConsumerMessage) {}}, sarama.ErrClosedClient, int64(5)
				done := make(chan error, 1)
				go func() { done <- call(t.Context(), g, h) }()
				if name == "between two calls" {
					if err := <-done; !errors.Is(err, errSetup) {
						t.Errorf("the first call returned %v", err)
					}
					done <- want
					committed = -1
				} else {
					until(t, "5 messages", func() bool { return h.count() == 5 })
				}
				if err := client.Close(); err != nil {
					t.Error(err)
				}
				closed := time.Now()
				if err := <-done; !errors.Is(err, want) {
					t.Errorf("the call returned %v", err)
				}
				if took := time.Since(closed); took > 2*time.Second {
					t.Errorf("after %v", took)
				}
				time.Sleep(2 * time.Second)
				if members := r.zk.Children(membersPath); len(members) > 0 || r.committed(topic, 0) != committed {
					t.Errorf("members %v, committed %d", members, r.committed(topic, 0))
				}
				for range 2 {
					if err := g.Consume(t.Context(), []string{topic}, h); !errors.Is(err, want) {
						t.Errorf("the next call returned %v", err)
					}
				}
				if err := end(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
