package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
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
		topic   string
		between bool
	}{
		"while it consumes":             {topic, false},
		"by pattern":                    {"^" + topic + "$", false},
		"between two calls":             {topic, true},
		"between two calls, by pattern": {"^" + topic + "$", true},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 2, func(t *testing.T, r *rig) {
				m := &movingBroker{dialer: dialer{r.knet}}
				config := r.config()
				config.Net.Proxy.Dialer = m
				g, client, end := r.ofClient([]string{byName}, config, consumer.Options{})
				go func() {
					for range g.Errors() {
					}
				}()
				h := &recorder{done: func(*sarama.ConsumerMessage) {}}
				moves(t, r, m, c.between, func() (stop func()) {
					ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
					done := make(chan struct{})
					go func() {
						defer close(done)
						for ctx.Err() == nil {
							if err := g.Consume(ctx, []string{c.topic}, h); err != nil {
								t.Log("Consume:", err)
								time.Sleep(time.Second)
							}
						}
					}()
					return func() { cancel(); <-done }
				}, h.count)
				if err := errors.Join(end(), client.Close()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// moves lets all brokers move while a member consumes, or between two of its calls.
func moves(t *testing.T, r *rig, m *movingBroker, between bool, consume func() func(), count func() int) {
	t.Helper()
	r.produce(5)
	stop := consume()
	until(t, "the messages before", func() bool { return count() == 10 })
	if between {
		stop()
	}
	m.move(t, r)
	r.produce(5)
	if between {
		stop = consume()
	}
	defer stop()
	if took := until(t, "the messages after", func() bool { return count() == 20 }); took > 30*time.Second {
		t.Errorf("read again after %v", took)
	}
	until(t, "the marks are stored", func() bool { return r.committed(topic, 0) == 10 && r.committed(topic, 1) == 10 })
}
