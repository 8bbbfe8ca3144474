package conformance_test

import (
	"flag"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/test/conformance"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
	"github.com/kielgo/kiel/zktest"
)

var (
	seeds     = flag.Int("seeds", 25, "random scripts to run")
	firstSeed = flag.Uint64("seed", 1, "the first of them")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func options() zktest.Options { return zktest.Options{TickTime: conformance.TickTime} }

// TestVirtual runs the suite on zktest's virtual network, each case in a bubble.
func TestVirtual(t *testing.T) {
	conformance.Run(t, conformance.Target{Bubble: true, EventsHaveZxid: true, Open: func(t *testing.T) *conformance.Server {
		srv, nw := zktest.StartVirtual(t, options())
		return &conformance.Server{Address: zktest.VirtualAddress, Dial: nw.Dial, Restart: restart(t, srv)}
	}})
}

// TestTCP runs the suite on zktest over TCP.
func TestTCP(t *testing.T) {
	t.Parallel()
	srv, address := zktest.Start(t, options())
	conformance.Run(t, conformance.Target{EventsHaveZxid: true, Open: func(*testing.T) *conformance.Server {
		return &conformance.Server{Address: address, Dial: new(net.Dialer).DialContext, Restart: restart(t, srv)}
	}})
}

func restart(t *testing.T, srv *zktest.Server) func(time.Duration) {
	return func(down time.Duration) {
		srv.Down()
		wait.Pass(t, down)
		srv.Restart(false)
	}
}

func TestZooKeeper39(t *testing.T) { runReal(t, servers.ZooKeeper39, true) }

func TestZooKeeper38(t *testing.T) { runReal(t, servers.ZooKeeper38, false) }

func runReal(t *testing.T, version string, eventsHaveZxid bool) {
	t.Helper()
	t.Parallel()
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{Version: version, TickTime: conformance.TickTime})
	srv := &conformance.Server{Address: zk.Addr(), Dial: new(net.Dialer).DialContext, Restart: func(down time.Duration) {
		zk.Kill()
		wait.Pass(t, down)
		zk.Start()
	}}
	conformance.Run(t, conformance.Target{EventsHaveZxid: eventsHaveZxid, Open: func(*testing.T) *conformance.Server { return srv }})
}

// TestRandom has the same random requests answered by zktest and by real servers.
func TestRandom(t *testing.T) {
	t.Parallel()
	_, address := zktest.Start(t, options())
	targets := []string{address}
	versions := []string{servers.ZooKeeper39, servers.ZooKeeper38}
	for _, version := range versions {
		zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{Version: version, TickTime: conformance.TickTime})
		targets = append(targets, zk.Addr())
	}
	for seed := range uint64(*seeds) {
		var want string
		for i, address := range targets {
			srv := &conformance.Server{Address: address, Dial: new(net.Dialer).DialContext}
			got := conformance.Random(t, srv, *firstSeed+seed, 200)
			if i == 0 {
				want = got
			} else if got != want {
				t.Fatalf("seed %d, ZooKeeper %s: %s", *firstSeed+seed, versions[i-1], difference(got, want))
			}
		}
	}
}

// difference shows where a real server's text leaves zktest's.
func difference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d\n  real: %s\nzktest: %s\nafter:\n%s", i+1, g[i], w[i], strings.Join(g[max(0, i-30):i], "\n"))
		}
	}
	return fmt.Sprintf("%d and %d lines", len(g), len(w))
}
