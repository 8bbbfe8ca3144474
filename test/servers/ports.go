package servers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Ports lie below the range from which the kernel takes ports for outgoing connections (32768 and up), so that a server
// that was down for a moment finds its port free when it comes back.
const (
	firstPort = 15000
	lastPort  = 32000
)

// FreePorts finds n ports of the loopback address on which nobody listens. Somebody may before their user does: whoever starts a server on them
// tries again with others.
func FreePorts(tb testing.TB, n int) []int {
	tb.Helper()
	var ports []int
	var listeners []net.Listener
	var err error
	var listen net.ListenConfig
	for range 100 * n {
		port := firstPort + rand.IntN(lastPort-firstPort)
		var l net.Listener
		if l, err = listen.Listen(tb.Context(), "tcp", loopback(port)); err != nil {
			continue
		}
		listeners = append(listeners, l)
		if ports = append(ports, port); len(ports) == n {
			break
		}
	}
	for _, l := range listeners {
		err = errors.Join(err, l.Close())
	}
	if len(ports) < n {
		tb.Fatalf("find %d free ports: %v", n, err)
	}
	return ports
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
