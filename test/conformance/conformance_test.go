package conformance_test

import (
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/test/conformance"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func options() zktest.Options { return zktest.Options{TickTime: conformance.TickTime} }

// TestVirtual runs the suite on zktest's virtual network, each case in a bubble.
func TestVirtual(t *testing.T) {
	conformance.Run(t, conformance.Target{Bubble: true, EventsHaveZxid: true, Open: func(t *testing.T) *conformance.Server {
		srv, nw := zktest.StartVirtual(t, options())
		return &conformance.Server{Address: zktest.VirtualAddress, Dial: nw.Dial, Restart: restart(srv)}
	}})
}

// TestTCP runs the suite on zktest over TCP.
func TestTCP(t *testing.T) {
	srv, address := zktest.Start(t, options())
	conformance.Run(t, conformance.Target{EventsHaveZxid: true, Open: func(*testing.T) *conformance.Server {
		return &conformance.Server{Address: address, Dial: new(net.Dialer).DialContext, Restart: restart(srv)}
	}})
}

func restart(srv *zktest.Server) func(time.Duration) {
	return func(down time.Duration) {
		srv.Down()
		<-time.After(down)
		srv.Restart(false)
	}
}

func TestZooKeeper39(t *testing.T) { real(t, servers.ZooKeeper39, true) }

func TestZooKeeper38(t *testing.T) { real(t, servers.ZooKeeper38, false) }

func real(t *testing.T, version string, eventsHaveZxid bool) {
	t.Helper()
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{Version: version, TickTime: conformance.TickTime})
	srv := &conformance.Server{Address: zk.Addr(), Dial: new(net.Dialer).DialContext, Restart: func(down time.Duration) {
		zk.Kill()
		<-time.After(down)
		zk.Start()
	}}
	conformance.Run(t, conformance.Target{EventsHaveZxid: eventsHaveZxid, Open: func(*testing.T) *conformance.Server { return srv }})
}
