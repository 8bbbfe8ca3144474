package consumer

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// serveBroker accepts connections until the test ends, and gives each to f. Then it closes them.
func serveBroker(t *testing.T, f func(net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var handling kafkaconn.Calls
	handling.Start(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			handling.Start(func() {
				f(c)
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); handling.Wait() })
	return l.Addr().String()
}

// answers reads a request and sends the same answer to each. Without an answer it closes the connection.
func answers(said string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = io.CopyN(io.Discard, c, 4)
		if said != "" {
			_, _ = io.WriteString(c, said)
			_, _ = io.Copy(io.Discard, c)
		}
	}
}

// The pages of Consume and NewGroup promise sarama.ErrOutOfBrokers when there is no broker; the error names the address too.
func TestConsumeWithoutBrokers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := l.Addr().String()
	_ = l.Close()
	_, zookeeper := zktest.Start(t, zktest.Options{})
	alert := "\x15\x03\x03\x00\x02\x02\x0a"
	closed, other := "closed the connection before it answered", "does not answer as a Kafka broker"
	noTLS, withTLS := "does it expect TLS?", "with TLS?"
	for _, s := range []struct {
		name    string
		address string
		tls     bool
		want    []string
	}{
		{"refused", refused, false, []string{"connection refused"}},
		{"refused, with TLS", refused, true, []string{"connection refused"}},
		{"a ZooKeeper port", zookeeper, false, []string{closed, noTLS}},
		{"a ZooKeeper port with TLS", zookeeper, true, []string{closed, withTLS}},
		{"a TLS port that says nothing", serveBroker(t, answers("")), false, []string{closed, noTLS}},
		{"a plaintext port with TLS", serveBroker(t, answers("")), true, []string{closed, withTLS}},
		{"a TLS port without TLS", serveBroker(t, answers(alert)), false, []string{other, noTLS}},
		{"a web server, with TLS", serveBroker(t, answers("HTTP/1.1 400 Bad Request\r\n")), true, []string{other, withTLS}},
	} {
		for versions, ask := range map[string]bool{"": true, ", versions not asked for": false} {
			t.Run(s.name+versions, func(t *testing.T) {
				config := testConfig()
				config.ApiVersionsRequest = ask
				config.Net.TLS.Enable = s.tls
				config.Net.TLS.Config = &tls.Config{MinVersion: tls.VersionTLS12}
				config.Metadata.Retry.Max = 1
				zk, err := session.New([]string{"nowhere.invalid:2181"}, session.Options{})
				if err != nil {
					t.Fatal(err)
				}
				g, err := New(zk, []string{s.address}, "g", Options{Config: config})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = g.Close() }()
				consume := g.Consume(t.Context(), []string{"t"}, handlerFunc(nil))
				_, made := NewGroup([]string{zookeeper}, []string{s.address}, "g", Options{Config: config})
				for call, err := range map[string]error{"Consume": consume, "NewGroup": made} {
					if !errors.Is(err, sarama.ErrOutOfBrokers) {
						t.Errorf("%s: %v: no ErrOutOfBrokers", call, err)
					}
					for _, part := range append(s.want, s.address) {
						if err == nil || !strings.Contains(err.Error(), part) {
							t.Errorf("%s: the error does not say %q: %v", call, part, err)
						}
					}
				}
			})
		}
	}
}

// NewGroup waits as long as Config says for a broker that accepts connections and never answers.
func TestNewGroupWithSilentBroker(t *testing.T) {
	silent := serveBroker(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	zk, zookeeper := zktest.Start(t, zktest.Options{})
	for full, ask := range map[bool]bool{true: false, false: true} {
		config := testConfig()
		config.ApiVersionsRequest, config.Metadata.Full = ask, full
		config.Net.ReadTimeout = 50 * time.Millisecond
		config.Metadata.Retry.Max, config.Metadata.Retry.Backoff = 1, time.Millisecond
		_, err := NewGroup([]string{zookeeper}, []string{silent}, "g", Options{Config: config})
		if !errors.Is(err, sarama.ErrOutOfBrokers) || !strings.Contains(err.Error(), "timeout") {
			t.Errorf("%v: no ErrOutOfBrokers by a timeout", err)
		}
	}
	if n := zk.Stats().SessionsCreated; n != 0 {
		t.Errorf("%d ZooKeeper sessions were created", n)
	}
}
