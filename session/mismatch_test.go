package session_test

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// serve accepts connections until the test ends. It gives one after the other to f, and then closes it.
func serve(t *testing.T, f func(net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noerr.Must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

// hangUp closes the connection when something has come, as Kafka does with what is no request.
func hangUp(c net.Conn) { _, _ = io.CopyN(io.Discard, c, 4) }

// answer says the same to everybody, and leaves closing to the client.
func answer(said string) func(net.Conn) {
	return func(c net.Conn) {
		hangUp(c)
		_, _ = io.WriteString(c, said)
		_, _ = io.Copy(io.Discard, c)
	}
}

// A port that is no ZooKeeper port, or a side that speaks TLS alone, is named, with what is usually wrong.
func TestWrongPort(t *testing.T) {
	secure, config := serveTLS(t)
	_, plain := zktest.Start(t, zktest.Options{})
	closed, other := "closed the connection during the handshake", "does not answer as a ZooKeeper server"
	noTLS, withTLS := "does it expect TLS", "a ZooKeeper client port with TLS"
	for _, s := range []struct {
		name    string
		address string
		tls     *tls.Config
		want    []string
	}{
		{"a Kafka port", serve(t, hangUp), nil, []string{closed, noTLS}},
		{"a Kafka port, with TLS", serve(t, hangUp), config, []string{closed, withTLS}},
		{"a web server", serve(t, answer("HTTP/1.1 400 Bad Request\r\n")), nil, []string{other, noTLS}},
		{"a web server, with TLS", serve(t, answer("HTTP/1.1 400 Bad Request\r\n")), config, []string{other, withTLS}},
		{"a TLS port without TLS", secure, nil, []string{closed, noTLS}},
		{"a TLS alert", serve(t, answer("\x15\x03\x03\x00\x02\x02\x0a")), nil, []string{other, noTLS}},
		{"a plaintext port with TLS", plain, config, []string{closed, withTLS}},
	} {
		t.Run(s.name, func(t *testing.T) {
			log := new(logtest.Log)
			ses, err := session.New([]string{s.address}, session.Options{TLS: s.tls, Logger: slog.New(slog.NewTextHandler(log, nil))})
			noerr.Must(t, err)
			m := run(t, ses, nil)
			for start := time.Now(); ; { // the reason is known after the first attempt
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				_, err = m.Incarnation(ctx)
				cancel()
				if err == nil {
					t.Fatal("connected")
				}
				if strings.Contains(err.Error(), "last connection error") || time.Since(start) > 20*time.Second {
					break
				}
			}
			noerr.Want(t, m.stop())
			for _, part := range append(s.want, s.address+" ") {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error does not say %q: %v", part, err)
				}
			}
			if n := log.Count(append(s.want, "level=WARN", s.address)...); n != 1 {
				t.Errorf("%d such warnings, want 1:\n%s", n, log)
			}
			if n := log.Count("level=WARN", "bad frame"); n > 0 {
				t.Errorf("each attempt is warned of:\n%s", log)
			}
		})
	}
}
