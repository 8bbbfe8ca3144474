// Package conntest has connections for tests that check the bytes written to Kafka.
package conntest

import (
	"bytes"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/IBM/sarama"
	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
)

// Config returns a configuration of sarama for tests.
func Config() *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "test"
	c.Version = sarama.V3_6_0_0
	c.Consumer.Return.Errors = true
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	return c
}

// ConfigOn returns Config with connections that dial makes.
func ConfigOn(dial func(network, address string) (net.Conn, error)) *sarama.Config {
	c := Config()
	c.Net.Proxy.Enable = true
	c.Net.Proxy.Dialer = dialer(dial)
	return c
}

type dialer func(network, address string) (net.Conn, error)

func (d dialer) Dial(network, address string) (net.Conn, error) { return d(network, address) }

// Sinks is a network on which each connection is a Sink. The zero value works.
type Sinks struct {
	mu   sync.Mutex
	last *Sink
}

// Config returns a configuration whose connections are on this network.
func (s *Sinks) Config() *sarama.Config {
	return ConfigOn(func(string, string) (net.Conn, error) {
		sink := &Sink{}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.last = sink
		return sink, nil
	})
}

// Dial returns a connection of d, which has the configuration of s, and the Sink behind it.
func (s *Sinks) Dial(t *testing.T, d interface {
	Dial(network, address string) (net.Conn, error)
},
) (net.Conn, *Sink) {
	t.Helper()
	c, err := d.Dial("tcp", "sink:9092")
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return c, s.last
}

// Sink is a connection that records writes, SetLinger and Close.
type Sink struct {
	net.Conn
	mu      sync.Mutex
	written bytes.Buffer
	closed  bool
	linger  []int
}

func (s *Sink) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, net.ErrClosed
	}
	return s.written.Write(b)
}

// SetLinger records its argument.
func (s *Sink) SetLinger(sec int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	s.linger = append(s.linger, sec)
	return nil
}

// Close closes the connection.
func (s *Sink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// Written returns all written bytes.
func (s *Sink) Written() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written.String()
}

// Aborted reports whether the connection was closed so that unsent bytes are dropped.
func (s *Sink) Aborted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed && slices.Equal(s.linger, []int{0})
}

// Hole accepts connections until the test ends and never answers. It returns its address.
func Hole(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // until the test ends
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			}()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

// Main runs the tests of a package that uses sarama, whose log goes nowhere, and fails if they leave goroutines behind.
func Main(m *testing.M) {
	logtest.Silence()
	goleak.VerifyTestMain(m,
		// sarama counts in go-metrics' own registry, whatever its configuration says; all its meters share one goroutine that
		// never ends.
		goleak.IgnoreAnyFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
	)
}
