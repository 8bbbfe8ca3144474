package servers_test

import (
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/test/servers"
)

// What a follower and its leader say to each other can be led through something that the test holds in its hands.
func TestFollowersThroughProxies(t *testing.T) {
	followed := make(map[int]*atomic.Int64) // connections to the leader, by follower
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{
		Servers:  3,
		TickTime: 500 * time.Millisecond,
		Peer: func(from, _ int, ports servers.PeerPorts) servers.PeerPorts {
			if followed[from] == nil {
				followed[from] = new(atomic.Int64)
			}
			ports.Quorum = forward(t, ports.Quorum, followed[from])
			return ports
		},
	})
	for i, n := range zk.Nodes() {
		if n.Mode() == "follower" && followed[i].Load() == 0 {
			t.Errorf("server %d follows, but not through its proxy", i+1)
		}
	}
}

// forward listens on a port and forwards each connection to another; it returns the port.
func forward(t *testing.T, port int, count *atomic.Int64) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				_ = in.Close()
				continue
			}
			count.Add(1)
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				go func() {
					_, _ = io.Copy(way[0], way[1])
					_ = way[0].Close()
				}()
			}
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}
