package servers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Ports lie below the range from which the kernel takes ports for outgoing connections (32768 and up), so that no connection
// takes that of a server that is down for a while.
const (
	firstPort = 15000
	lastPort  = 32000
)

// FreePorts finds n ports of the loopback address on which nobody listens, and keeps them for tb until it ends: no other call
// returns them, in this process or in another, so that a server that is down for a while finds its port free when it comes back.
// Programs that don't ask here may take one before its user does: whoever starts a server on them tries again with others.
func FreePorts(tb testing.TB, n int) []int {
	tb.Helper()
	var ports []int
	var err error
	for range 100 * n {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if err = reserve(tb, port); err != nil {
			continue
		}
		if ports = append(ports, port); len(ports) == n {
			return ports
		}
	}
	tb.Fatalf("find %d free ports: %v", n, err)
	return nil
}

// reserve keeps a port until tb ends, by a UDP socket of the same number: servers listen by TCP, so it is in nobody's way.
func reserve(tb testing.TB, port int) error {
	tb.Helper()
	var listen net.ListenConfig
	l, err := listen.Listen(tb.Context(), "tcp", loopback(port))
	if err != nil {
		return err
	}
	kept, err := listen.ListenPacket(tb.Context(), "udp", loopback(port))
	if err := errors.Join(err, l.Close()); err != nil {
		return err
	}
	tb.Cleanup(func() { _ = kept.Close() })
	return nil
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
