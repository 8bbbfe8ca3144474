package servers_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/test/servers"
)

func TestZooKeeperServes(t *testing.T) {
	t.Parallel()
	for _, version := range []string{servers.ZooKeeper39, servers.ZooKeeper38} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{
				Version:           version,
				TickTime:          500 * time.Millisecond,
				MaxSessionTimeout: 2 * time.Second,
			})
			node := zk.Nodes()[0]
			if got, want := node.Mode(), "standalone"; got != want {
				t.Errorf("Mode() = %q, want %q", got, want)
			}
			for command, want := range map[string]string{
				"srvr": "Zookeeper version: " + version,
				"conf": "maxSessionTimeout=2000",
			} {
				if got, err := node.Ask(command); err != nil || !strings.Contains(got, want) {
					t.Errorf("Ask(%q) = %q, %v, want %q in it", command, got, err, want)
				}
			}
		})
	}
}

func TestZooKeeperKeepsDataAndAddress(t *testing.T) {
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
	conn := connect(t, zk.Addrs()...)
	if _, err := conn.Create("/a", []byte("x"), 0, worldACL); err != nil {
		t.Fatal(err)
	}
	addr := zk.Addr()
	zk.Kill()
	if mode := zk.Nodes()[0].Mode(); mode != "" {
		t.Errorf("after Kill, Mode() = %q", mode)
	}
	zk.Start()
	zk.Restart()
	if zk.Addr() != addr {
		t.Errorf("Addr() was %s before the restart and is %s now", addr, zk.Addr())
	}
	conn = connect(t, zk.Addrs()...)
	if got, _, err := conn.Get("/a"); err != nil || string(got) != "x" {
		t.Errorf("after restarts, Get(/a) = %q, %v, want x", got, err)
	}
}

func TestEnsembleOutlivesItsLeader(t *testing.T) {
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{Servers: 3, TickTime: 500 * time.Millisecond})
	conn := connect(t, zk.Addrs()...)
	if _, err := conn.Create("/a", []byte("x"), 0, worldACL); err != nil {
		t.Fatal(err)
	}
	old := zk.Leader()
	old.Kill()
	var leader *servers.ZooKeeperNode
	eventually(t, "a new leader", func() bool {
		leader = zk.Leader()
		return leader != nil
	})
	if leader == old {
		t.Fatalf("%s leads after it was killed", old.Addr())
	}
	conn = connect(t, leader.Addr())
	if got, _, err := conn.Get("/a"); err != nil || string(got) != "x" {
		t.Errorf("from the new leader, Get(/a) = %q, %v, want x", got, err)
	}
	old.Start()
	old.WaitReady()
	if got, want := old.Mode(), "follower"; got != want {
		t.Errorf("the old leader came back as %q, want %q", got, want)
	}
}
