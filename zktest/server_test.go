package zktest_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http/httptest"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/zktest"
)

func TestStart(t *testing.T) {
	t.Parallel()
	srv, address := zktest.Start(t, zktest.Options{TickTime: 50 * time.Millisecond})
	c := connect(t, address, new(net.Dialer).DialContext, time.Second)
	create(t, c, "/e", zk.FlagEphemeral)
	if infos := srv.Sessions(); len(infos) != 1 || len(infos[0].Ephemerals) != 1 || infos[0].Client == "" {
		t.Errorf("%+v", infos)
	}
	id := c.SessionID()
	srv.CutAll()
	gone := make(chan struct{})
	go func() { // the server's own clock, in real time
		defer close(gone)
		for {
			if _, err := c.Set("/e", nil, -1); err == nil {
				return
			}
		}
	}()
	<-gone
	if c.SessionID() != id {
		t.Errorf("session %#x became %#x", id, c.SessionID())
	}
}

// TestStartTCP: a server without a test serves until Close, on any free port or the one it was given.
func TestStartTCP(t *testing.T) {
	t.Parallel()
	srv, address, err := zktest.StartTCP(t.Context(), "", zktest.Options{})
	must(t, err)
	if host, _, err := net.SplitHostPort(address); err != nil || host != "127.0.0.1" {
		t.Errorf("listens at %q: %v", address, err)
	}
	c := connect(t, address, new(net.Dialer).DialContext, time.Second)
	create(t, c, "/x", 0)
	if _, _, ok := srv.Get("/x"); !ok {
		t.Error("nothing was created")
	}

	if other, _, err := zktest.StartTCP(t.Context(), address, zktest.Options{}); other != nil || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("on a port that is taken: %v", err)
	}
	must(t, srv.Close())
	must(t, srv.Close())
	again, same, err := zktest.StartTCP(t.Context(), address, zktest.Options{})
	must(t, err)
	if same != address {
		t.Errorf("asked for %s, got %s", address, same)
	}
	must(t, again.Close())

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, address := range []string{"", "localhost:0"} {
		if srv, _, err := zktest.StartTCP(ended, address, zktest.Options{}); srv != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("at %q with a context that has ended: %v", address, err)
		}
	}
	if srv, _, err := zktest.StartTCP(t.Context(), "nonsense", zktest.Options{}); srv != nil || err == nil {
		t.Errorf("at an address without a port: %v", err)
	}
}

// TestClose: a server closes in whatever trouble it is, and is silent afterwards.
func TestClose(t *testing.T) {
	for name, trouble := range map[string]func(*zktest.Server, *zktest.Network){
		"none":       func(*zktest.Server, *zktest.Network) {},
		"frozen":     func(s *zktest.Server, _ *zktest.Network) { s.Freeze() },
		"silent":     func(s *zktest.Server, _ *zktest.Network) { s.SilentHandshakes(true); s.CutAll() },
		"black hole": func(_ *zktest.Server, n *zktest.Network) { n.BlackHole(zktest.Both) },
		"down":       func(s *zktest.Server, _ *zktest.Network) { s.Down() },
		"refusing":   func(_ *zktest.Server, n *zktest.Network) { n.Refuse(); n.Cut() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv, nw := zktest.StartVirtual(t, zktest.Options{})
				c := connect(t, "zk:2181", nw.Dial, timeout)
				create(t, c, "/e", zk.FlagEphemeral)
				trouble(srv, nw)
				time.Sleep(time.Second)
				start := time.Now()
				must(t, srv.Close())
				must(t, srv.Close())
				if d := time.Since(start); d != 0 {
					t.Errorf("took %v", d)
				}
				if _, _, ok := srv.Get("/e"); !ok {
					t.Error("the data can't be looked at any more")
				}
				l, err := nw.Listen("late")
				must(t, err)
				must(t, srv.Serve(l))
				if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
					t.Errorf("a closed server left the listener open: %v", err)
				}
				nw.Heal()
				nw.Cut()
			})
		})
	}
}

// TestTLS: Serve takes a TLS listener; the client's certificate is nobody to it.
func TestTLS(t *testing.T) {
	helper := httptest.NewUnstartedServer(nil)
	helper.StartTLS() // for its certificate
	defer helper.Close()
	nw := zktest.NewNetwork()
	l, err := nw.Listen("zk")
	must(t, err)
	srv := zktest.NewServer(zktest.Options{})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(tls.NewListener(l, helper.TLS)) }()
	pool := x509.NewCertPool()
	pool.AddCert(helper.Certificate())
	c := connect(t, "zk", func(ctx context.Context, network, address string) (net.Conn, error) {
		nc, err := nw.Dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return tls.Client(nc, &tls.Config{RootCAs: pool, ServerName: "example.com"}), nil
	}, timeout)
	create(t, c, "/x", 0)
	srv.CutAll()
	must(t, srv.Close())
	must(t, <-served)
}

// TestServeFails: what ends a listener ends Serve.
func TestServeFails(t *testing.T) {
	srv := zktest.NewServer(zktest.Options{})
	broken := errors.New("broken")
	if err := srv.Serve(brokenListener{broken}); !errors.Is(err, broken) {
		t.Errorf("Serve: %v", err)
	}
	l, err := zktest.NewNetwork().Listen("x")
	must(t, err)
	must(t, l.Close())
	must(t, srv.Serve(l))
	must(t, srv.Close())
}

type brokenListener struct{ err error }

func (l brokenListener) Accept() (net.Conn, error) { return nil, l.err }
func (l brokenListener) Close() error              { return nil }
func (l brokenListener) Addr() net.Addr            { return &net.TCPAddr{} }

// TestManyClients: many sessions expire at their tick, all at once, and the bubble ends clean.
func TestManyClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, nw := zktest.StartVirtual(t, zktest.Options{})
		must(t, srv.Create("/members", nil))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		const clients = 200
		for range clients {
			go func() {
				c, err := dialRaw(ctx, nw)
				if err != nil {
					t.Error(err)
					return
				}
				context.AfterFunc(ctx, func() { _ = c.Close() })
				c.join("/members/m-")
			}()
		}
		synctest.Wait()
		if n := len(srv.Children("/members")); n != clients {
			t.Errorf("%d members", n)
		}
		time.Sleep(9 * time.Second)
		if st := srv.Stats(); st.Sessions != 0 || st.SessionsExpired != clients || len(srv.Children("/members")) != 0 {
			t.Errorf("%+v", st)
		}
	})
}
