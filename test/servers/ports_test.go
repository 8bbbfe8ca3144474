package servers_test

import (
	"net"
	"strconv"
	"testing"

	"github.com/kielgo/kiel/test/servers"
)

// TestPortsAreKept asks for ports that nobody listens on: they are kept all the same, also from other processes, until the test
// that has asked ends.
func TestPortsAreKept(t *testing.T) {
	var ports []int
	taken := func(port int) bool {
		var listen net.ListenConfig
		c, err := listen.ListenPacket(t.Context(), "udp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			return true
		}
		_ = c.Close()
		return false
	}
	t.Run("while the test runs", func(t *testing.T) {
		ports = servers.FreePorts(t, 5)
		for _, port := range ports {
			if !taken(port) {
				t.Errorf("port %d is not kept", port)
			}
			var listen net.ListenConfig
			l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:"+strconv.Itoa(port))
			if err != nil {
				t.Fatalf("a server can't listen on it: %v", err)
			}
			_ = l.Close()
		}
	})
	for _, port := range ports {
		if taken(port) {
			t.Errorf("port %d is kept after the test", port)
		}
	}
}
