package fetch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/testonly/bubble"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// theirs has a certificate of example.com that signs itself, and the pool that trusts it.
func theirs(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	return server.TLS.Certificates[0], pool
}

// tlsCluster is a fakeCluster whose broker has a name, and speaks TLS. Its connections have buffers, which handshakes need.
type tlsCluster struct {
	*fakeCluster
	name     string // in the broker's address
	server   *tls.Config
	listener net.Listener

	mu    sync.Mutex
	names []string // that clients have asked for
	certs int      // that clients have shown
}

func (c *tlsCluster) Leader(string, int32) (Node, int32, error) {
	return Node{ID: 1, Addr: c.name + ":9093"}, 0, nil
}

func (c *tlsCluster) Dial(network, address string) (net.Conn, error) {
	if address != c.name+":9093" {
		return nil, errors.New("another address")
	}
	return net.Dial(network, c.listener.Addr().String())
}

// accept serves connections until the listener is closed.
func (c *tlsCluster) accept() {
	for {
		server, err := c.listener.Accept()
		if err != nil {
			return
		}
		c.fakeCluster.mu.Lock()
		c.conns = append(c.conns, server)
		c.fakeCluster.mu.Unlock()
		c.served.Go(func() {
			secure := tls.Server(server, c.server)
			if secure.Handshake() != nil {
				server.Close()
				return
			}
			c.mu.Lock()
			c.names = append(c.names, secure.ConnectionState().ServerName)
			c.certs += len(secure.ConnectionState().PeerCertificates)
			c.mu.Unlock()
			c.serve(&serverConn{Conn: secure, gone: make(chan struct{})}, 1)
		})
	}
}

// TLS is put on connections of whatever dialer, as sarama does it: the broker's name is that of its address unless another is
// set.
func TestTLS(t *testing.T) {
	cert, pool := theirs(t)
	certs := []tls.Certificate{cert}
	server, asks := &tls.Config{Certificates: certs}, &tls.Config{Certificates: certs, ClientAuth: tls.RequireAnyClientCert}
	for name, c := range map[string]struct {
		broker string
		server *tls.Config
		client *tls.Config
		name   string // that the client asks for; "" if the handshake fails
		certs  int
	}{
		"the address's name":   {"example.com", server, &tls.Config{RootCAs: pool}, "example.com", 0},
		"a name that is set":   {"broker.invalid", server, &tls.Config{RootCAs: pool, ServerName: "example.com"}, "example.com", 0},
		"a client certificate": {"example.com", asks, &tls.Config{RootCAs: pool, Certificates: certs}, "example.com", 1},
		"an unknown authority": {"example.com", server, &tls.Config{RootCAs: x509.NewCertPool()}, "", 0},
		"another name":         {"broker.invalid", server, &tls.Config{RootCAs: pool}, "", 0},
		"without settings":     {"example.com", server, nil, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			testTLS(t, &tlsCluster{fakeCluster: newCluster(), name: c.broker, server: c.server}, c.client, c.name, c.certs)
		})
	}
}

func testTLS(t *testing.T, k *tlsCluster, client *tls.Config, name string, certs int) {
	var err error
	k.listener, err = net.Listen("tcp", "127.0.0.1:0")
	noerr.Must(t, err)
	k.served.Go(k.accept)
	k.add(0, batch{values: vals(3)})
	failed := make(chan struct{}, 1000)
	opts := Options{Config: testConfig(), Dialer: k, Errors: errlog.New(slog.New(slog.DiscardHandler)), OnFailure: func(Reason) { failed <- struct{}{} }}
	opts.Config.Net.TLS.Enable, opts.Config.Net.TLS.Config = true, client
	x, err := New(k, opts)
	noerr.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- x.Run(ctx) }()
	defer func() {
		cancel()
		<-ran
		k.listener.Close()
		k.end()
	}()
	p := open(t, x, 0, 0, -1)
	if name == "" {
		<-failed
		<-failed // what the first one was about is noted by now
		p.of.mu.Lock()
		defer p.of.mu.Unlock()
		if _, ok := errors.AsType[*tls.CertificateVerificationError](p.failure); !ok {
			t.Errorf("failed with %v", p.failure)
		}
		return
	}
	same(t, offsets(t, p, 3), seq(0, 3))
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.names) == 0 || k.names[0] != name || k.certs != certs*len(k.names) {
		t.Errorf("names %q, %d certificates", k.names, k.certs)
	}
}

// A handshake that the broker does not answer ends after Net.DialTimeout, or when no byte has come for 5 s, or with Run.
func TestTLSHandshakeHangs(t *testing.T) {
	for name, c := range map[string]struct{ timeout, run, want time.Duration }{
		"DialTimeout": {timeout: time.Second, run: time.Hour, want: time.Second},
		"silence":     {timeout: time.Hour, run: time.Hour, want: silence},
		"Run ends":    {timeout: time.Hour, run: 2 * time.Second, want: 2 * time.Second},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			client, server := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, server) }()
			defer server.Close()
			defer client.Close()
			ctx, cancel := context.WithTimeout(t.Context(), c.run)
			defer cancel()
			quiet := &conn{Conn: client, opened: time.Now(), traffic: &traffic{}}
			quiet.silence.Store(int64(silence))
			quiet.extend(int64(silence))
			began := time.Now()
			_, err := secure(ctx, quiet, "a:1", nil, c.timeout)
			if took := time.Since(began); err == nil || took != c.want {
				t.Errorf("ended after %v: %v", took, err)
			}
		})
	}
}

// The configuration that sarama gets has no TLS, and the user's stays as it was.
func TestBrokerConfigHasNoTLS(t *testing.T) {
	config := testConfig()
	config.Net.TLS.Enable, config.Net.TLS.Config = true, &tls.Config{}
	s, err := newSettings(Options{Config: config})
	noerr.Must(t, err)
	if c := s.brokerConfig(nil); c.Net.TLS.Enable || c.Net.TLS.Config != nil || !config.Net.TLS.Enable || !s.Config.Net.TLS.Enable {
		t.Error("TLS would be put on twice, or not at all")
	}
}
