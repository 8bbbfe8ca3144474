package conformance_test

import (
	"flag"
	"fmt"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/test/conformance"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
	"github.com/kielgo/kiel/zktest"
)

const defaultSeeds = 1000

var (
	seeds     = flag.Int("seeds", defaultSeeds, "random sequences to run on ZooKeeper 3.9")
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

// TestRandom39 has the same random sequences of requests answered by zktest and by a real server.
func TestRandom39(t *testing.T) { runRandom(t, servers.ZooKeeper39, *seeds, 110) }

func TestRandom38(t *testing.T) { runRandom(t, servers.ZooKeeper38, max(1, *seeds/3), 80) }

func runRandom(t *testing.T, version string, n, answers int) {
	t.Helper()
	t.Parallel()
	opts := conformance.DifferentialOptions()
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{
		Version: version, TickTime: opts.TickTime, MaxSessionTimeout: opts.MaxSessionTimeout,
	})
	d := &conformance.Differential{
		Real: &conformance.Server{Address: zk.Addr(), Dial: new(net.Dialer).DialContext},
		Old:  version == servers.ZooKeeper38,
	}
	for _, d.Expiry = range []bool{false, true} {
		name := "sequences"
		d.Workers = 1 // nobody else writes, so zxids are compared to the digit
		if d.Expiry {
			name, d.Workers, n = "sequences_with_expiry", 50, max(1, n/4)
		}
		steps := d.Run(t, *firstSeed, n)
		t.Attr(name, fmt.Sprintf("%d of %d steps", n, steps))
	}
	t.Attr("kinds_of_answers", fmt.Sprint(d.Answers()))
	if *seeds >= defaultSeeds && d.Answers() < answers {
		t.Errorf("%d kinds of answers, want %d: the sequences reach less than they did", d.Answers(), answers)
	}
}
