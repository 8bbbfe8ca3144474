package chaos_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

// Scenario 10: there is no quorum, and then no server at all, for two session timeouts. Owners stop in time; when servers are
// back they go on under the same claims: sessions can't expire while nobody is there to say so.
func TestQuorumLost(t *testing.T) {
	t.Parallel()
	zk := startEnsemble(t, servers.ZooKeeperOptions{})
	f := newFleet(t, 10, options{zookeeper: join(zk.Addrs()...)})
	f.startAll(3)
	before := f.tokens()

	outage := func(name string, nodes []*servers.ZooKeeperNode) (resumed time.Duration) {
		t.Helper()
		f.fault(name)
		at := members.Monotonic()
		for _, n := range nodes {
			n.Kill()
		}
		down := members.Monotonic()
		wait.Pass(t, 2*f.opts.timeout)
		f.read()
		for _, m := range f.all {
			since, ok := m.stoppedAt(at)
			if !ok {
				t.Errorf("%s: %s has not stopped", name, m.Name)
			} else if limit := f.opts.timeout*2/3 + 100*time.Millisecond; since-down > int64(limit) {
				t.Errorf("%s: %s stopped after %v, want %v at most", name, m.Name, time.Duration(since-down), limit)
			}
		}
		for _, n := range nodes {
			n.Start()
		}
		for _, n := range nodes {
			n.WaitReady()
		}
		f.healed()
		f.settle()
		stopped := make([]time.Duration, 0, len(f.all))
		for _, m := range f.all {
			since, _ := m.stoppedAt(at)
			stopped = append(stopped, time.Duration(since-at))
		}
		t.Attr(name+"-stopped-after", list(stopped))
		f.unmoved(name, before, at)
		return f.measured().owned
	}
	nodes := zk.Nodes()
	bestOf(t, "owned-after-a-quorum-was-back", resumeBound, func() time.Duration { return outage("quorum-lost", nodes[:2]) })
	bestOf(t, "owned-after-all-servers-were-back", resumeBound, func() time.Duration { return outage("all-servers-down", nodes) })
	f.repeatedOnlyAfter(f.finish(), eventlog.Untrusted)
}

// Scenario 11: ZooKeeper is back with empty data. The old clients are refused, for they have seen more than the servers know; the
// members make new sessions by themselves, and then the tree, the group and the claims.
func TestDataLost(t *testing.T) {
	t.Parallel()
	const (
		timeout = 6 * time.Second
		limit   = 17 * time.Second
	)
	zk := startEnsemble(t, servers.ZooKeeperOptions{})
	f := newFleet(t, 11, options{zookeeper: join(zk.Addrs()...), timeout: timeout})
	f.startAll(3)

	f.fault("all data of ZooKeeper lost")
	at := members.Monotonic()
	zk.Kill()
	down := members.Monotonic()
	zk.Wipe()
	zk.Start()
	f.healed()
	f.until("all have stopped", func() bool {
		for _, m := range f.all {
			if _, ok := m.stoppedAt(down); !ok {
				return false
			}
		}
		return true
	})
	f.settle()
	took := f.measured().owned
	t.Attr("rebuilt", fmt.Sprintf("all is owned %v after servers were back, %v after they were lost",
		ms(took), ms(f.since(down).owned)))
	if took > limit {
		t.Errorf("all is owned %v after servers were back, want %v at most", took, limit)
	}
	for _, m := range f.all {
		if m.sessions() != 2 {
			t.Errorf("%s had %d sessions, want 2", m.Name, m.sessions())
		}
	}
	// Tokens start again with the data, see "not promised" in the documentation.
	f.wiped = append(f.wiped, eventlog.Span{From: at, To: down + int64(timeout*2/3)})
	f.repeatedOnlyAfter(f.finish(), eventlog.Untrusted)
}
