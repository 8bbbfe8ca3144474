package servers_test

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/test/servers"
)

// The server knows clients by the name in a certificate of its authority, and takes nobody else by TLS.
func TestZooKeeperKnowsTheNameInACertificate(t *testing.T) {
	authority := servers.NewTLS(t)
	for _, version := range []string{servers.ZooKeeper39, servers.ZooKeeper38} {
		t.Run(version, func(t *testing.T) {
			server := servers.StartZooKeeper(t, servers.ZooKeeperOptions{Version: version, TLS: authority})
			plain := connect(t, server.Addr(), net.DialTimeout)
			acl := []zk.ACL{{Perms: zk.PermAll, Scheme: "x509", ID: "CN=alice"}}
			if _, err := plain.Create("/a", nil, 0, acl); err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]error{"alice": nil, "bob": zk.ErrNoAuth} {
				conn := connect(t, server.TLSAddr(), withTLS(authority.Client(name)))
				if _, err := conn.Set("/a", nil, -1); err != want { //nolint:errorlint // go-zookeeper's own values
					t.Errorf("%s: Set(/a) = %v, want %v", name, err, want)
				}
			}
			stranger := servers.NewTLS(t).Client("alice")
			stranger.InsecureSkipVerify = true // the client takes any server; will the server take it?
			for name, config := range map[string]*tls.Config{"stranger": stranger, "nobody": authority.Client("")} {
				dialer := tls.Dialer{Config: config}
				conn, err := dialer.DialContext(t.Context(), "tcp", server.TLSAddr())
				if err == nil { // TLS 1.3: the refusal comes with the first read
					_, err = conn.Read(make([]byte, 1))
					_ = conn.Close()
				}
				if err == nil {
					t.Errorf("%s: the server accepts the connection", name)
				}
			}
		})
	}
}

// withTLS returns a dialer of TLS connections.
func withTLS(config *tls.Config) zk.Dialer {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		return tls.DialWithDialer(&net.Dialer{Timeout: timeout}, network, address, config)
	}
}

// connect returns a client that has a session.
func connect(t *testing.T, addr string, dial zk.Dialer) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithDialer(dial), zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	timeout := time.After(30 * time.Second)
	for {
		select {
		case e := <-events:
			if e.State == zk.StateHasSession {
				return conn
			}
		case <-timeout:
			t.Fatalf("no ZooKeeper session at %s", addr)
		}
	}
}

type silent struct{}

func (silent) Printf(string, ...any) {}
