package servers_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/test/servers"
)

func TestZooKeeperServes(t *testing.T) {
	for _, version := range []string{servers.ZooKeeper39, servers.ZooKeeper38} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{Version: version, TickTime: 500 * time.Millisecond, MaxSessionTimeout: 2 * time.Second})
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
