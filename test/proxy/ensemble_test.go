package proxy_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/test/proxy"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

const (
	tick      = 500 * time.Millisecond
	syncLimit = 6
	timeout   = 8 * time.Second // longer than any cut, so that clients stay where they are
)

// The cuts are what the tests of others build on, so the servers themselves must show them.
func TestCutsBetweenServers(t *testing.T) {
	e := proxy.StartEnsemble(t, servers.ZooKeeperOptions{
		TickTime: tick,
		Config:   map[string]string{"syncLimit": fmt.Sprint(syncLimit)},
	})
	setup := connect(t, timeout, e.Addrs()...)
	if _, err := setup.Create("/x", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	t.Run("follower", func(t *testing.T) { cutFollower(t, e) })
	t.Run("leader on one side", func(t *testing.T) { cutLeader(t, e) })
}

func cutFollower(t *testing.T, e *proxy.Ensemble) {
	follower := e.FollowerIndex()
	t.Cleanup(e.Heal)
	// On one connection reads would wait for the write before them.
	on, writer := connect(t, timeout, e.Addrs()[follower]), connect(t, timeout, e.Addrs()[follower])
	others := connect(t, timeout, without(e.Addrs(), follower)...)
	begin := time.Now()
	e.CutFollower(follower)
	write := do(func() error { _, err := writer.Set("/x", nil, -1); return err })
	reads := 0
	for ; time.Since(begin) < (syncLimit-2)*tick; reads++ {
		if _, _, err := on.Get("/x"); err != nil {
			t.Fatalf("read from the follower, %v after it was cut: %v", time.Since(begin), err)
		}
		if _, err := others.Set("/x", nil, -1); err != nil {
			t.Fatalf("write to the others: %v", err)
		}
		wait.Pass(t, tick/2)
	}
	select {
	case err := <-write:
		t.Errorf("a write to the follower was answered: %v", err)
	default:
	}
	t.Logf("%d reads answered by the follower", reads)
	if err := <-write; err == nil {
		t.Error("a write to the follower was done")
	}
	t.Attr("follower_serves_on", time.Since(begin).Round(10*time.Millisecond).String())
	e.Heal()
	works(t, on)
	e.Nodes()[follower].WaitReady()
}

func cutLeader(t *testing.T, e *proxy.Ensemble) {
	t.Cleanup(e.Heal)
	addr := e.Addrs()[e.LeaderIndex()]
	on, writer := connect(t, timeout, addr), connect(t, timeout, addr)
	begin := time.Now()
	leader := e.CutLeaderOneSide()
	others := without(e.Nodes(), leader)
	write := do(func() error { _, err := writer.Set("/x", nil, -1); return err })
	wait.Until(t, soon, func() bool {
		return slices.ContainsFunc(others, func(n *servers.ZooKeeperNode) bool { return n.Mode() == "leader" })
	},
		func() string { return "another leader" })
	elected := time.Since(begin)
	works(t, connect(t, timeout, others[0].Addr(), others[1].Addr()))
	var syncs int
	var last time.Duration
	for ; ; syncs++ {
		if _, err := on.Sync("/x"); err != nil {
			break
		}
		if _, _, err := on.Get("/x"); err != nil {
			break
		}
		last = time.Since(begin)
		wait.Pass(t, 20*time.Millisecond)
	}
	t.Attr("leader_elected", elected.Round(10*time.Millisecond).String())
	t.Attr("deposed_leader_serves_on", last.Round(10*time.Millisecond).String())
	if syncs == 0 || last < elected {
		t.Errorf("the deposed leader answered syncs up to %v, another was elected after %v", last, elected)
	}
	if low, high := (syncLimit-2)*tick, (syncLimit+3)*tick; last < low || last > high {
		t.Errorf("the deposed leader answered syncs for %v, want %v to %v", last, low, high)
	}
	if err := <-write; err == nil {
		t.Error("a write to the deposed leader was done")
	}
	e.Heal()
	works(t, on)
	e.Nodes()[leader].WaitReady()
}

// works waits until a client can write.
func works(t *testing.T, conn *zk.Conn) {
	t.Helper()
	var last error
	wait.Until(t, 30*time.Second, func() bool { _, last = conn.Set("/x", nil, -1); return last == nil },
		func() string { return fmt.Sprintf("a write: %v", last) })
}

func do(f func() error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- f() }()
	return result
}

func without[T any](all []T, index int) []T { return slices.Delete(slices.Clone(all), index, index+1) }
