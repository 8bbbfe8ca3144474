package consumer_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// movingBroker is a network to Kafka in which a name leads to a broker, and on which all brokers may move to other addresses.
type movingBroker struct {
	dialer

	mu    sync.Mutex
	moved bool
	conns []net.Conn
}

// byName is the address that leads to a broker wherever it is.
const byName = "kafka.example.com:9092"

func (m *movingBroker) Dial(network, address string) (net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, port, err := net.SplitHostPort(address)
	switch {
	case err != nil:
		return nil, err
	case address == byName && m.moved:
		port = "9094"
	case address == byName:
		port = "9092"
	case m.moved == (port < "9094"):
		return nil, fmt.Errorf("dial %s: %w", address, syscall.ECONNREFUSED)
	}
	c, err := m.dialer.Dial(network, "localhost:"+port)
	if err == nil {
		m.conns = append(m.conns, c)
	}
	return c, err
}

// move gives all brokers other addresses.
func (m *movingBroker) move(t *testing.T, r *rig) {
	t.Helper()
	for _, port := range []int{9094, 9095} {
		if _, _, err := r.kafka.AddNode(-1, port); err != nil {
			t.Fatal(err)
		}
	}
	for node := range int32(2) {
		if err := r.kafka.RemoveNode(node); err != nil {
			t.Fatal(err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.moved = true
	for _, c := range m.conns {
		_ = c.Close()
	}
	m.conns = nil
}

// A member that was made from a client finds brokers that have all moved, by the name that the client was given.
func TestAllBrokersMove(t *testing.T) {
	for name, c := range map[string]struct {
		topics []string
		run    func(t *testing.T, r *rig, m *movingBroker, consume func() (stop func()), count func() int)
	}{
		"while it consumes":             {[]string{topic}, moveWhileConsuming},
		"by pattern":                    {[]string{"^" + topic + "$"}, moveWhileConsuming},
		"between two calls":             {[]string{topic}, moveBetweenCalls},
		"between two calls, by pattern": {[]string{"^" + topic + "$"}, moveBetweenCalls},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				m := &movingBroker{dialer: dialer{r.knet}}
				config := r.config()
				config.Net.Proxy.Dialer = m
				client, err := sarama.NewClient([]string{byName}, config)
				if err != nil {
					t.Fatal(err)
				}
				zk, err := session.Start(t.Context(), []string{zktest.VirtualAddress}, session.Options{Dial: r.zknet.Client("a").Dial})
				if err != nil {
					t.Fatal(err)
				}
				g, err := consumer.NewFromClient(zk, client, group, consumer.Options{})
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					for range g.Errors() {
					}
				}()
				h := &recorder{done: func(*sarama.ConsumerMessage) {}}
				c.run(t, r, m, func() (stop func()) {
					ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
					done := make(chan struct{})
					go func() {
						defer close(done)
						for ctx.Err() == nil {
							if err := g.Consume(ctx, c.topics, h); err != nil {
								t.Log("Consume:", err)
								time.Sleep(time.Second)
							}
						}
					}()
					return func() { cancel(); <-done }
				}, h.count)
				for _, err := range []error{g.Close(), zk.Close(t.Context()), client.Close()} {
					if err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

func moveWhileConsuming(t *testing.T, r *rig, m *movingBroker, consume func() func(), count func() int) {
	t.Helper()
	r.produce(5, 0, 1)
	stop := consume()
	defer stop()
	until(t, "the messages before", func() bool { return count() == 10 })
	m.move(t, r)
	r.produce(5, 0, 1)
	if took := until(t, "the messages after", func() bool { return count() == 20 }); took > 30*time.Second {
		t.Errorf("read again after %v", took)
	}
	until(t, "the marks are stored", func() bool { return r.committed(topic, 0) == 10 && r.committed(topic, 1) == 10 })
}

func moveBetweenCalls(t *testing.T, r *rig, m *movingBroker, consume func() func(), count func() int) {
	t.Helper()
	r.produce(5, 0, 1)
	stop := consume()
	until(t, "the messages before", func() bool { return count() == 10 })
	stop()
	m.move(t, r)
	r.produce(5, 0, 1)
	stop = consume()
	defer stop()
	if took := until(t, "the messages after", func() bool { return count() == 20 }); took > 30*time.Second {
		t.Errorf("read again after %v", took)
	}
}
