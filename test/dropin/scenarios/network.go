package scenarios

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// network is how the members of a scenario reach Kafka. It can be cut.
type network struct {
	mu    sync.Mutex
	isCut bool
	conns []net.Conn

	sending sync.RWMutex // held by those who send, and by hold
}

// gated is a connection that sends nothing while its network is held.
type gated struct {
	net.Conn

	sending *sync.RWMutex
}

// Write waits until the network is not held.
func (c gated) Write(b []byte) (int, error) {
	c.sending.RLock()
	defer c.sending.RUnlock()
	return c.Conn.Write(b) //nolint:wrapcheck // it is that error
}

// hold stops members' requests from now on. They are sent when the function that it returns is called.
func (n *network) hold() (release func()) {
	n.sending.Lock()
	return n.sending.Unlock
}

// Dial opens a connection, unless the network is cut.
func (n *network) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.isCut {
		return nil, errors.Join(errors.New("the network is cut"), conn.Close())
	}
	n.conns = append(n.conns, conn)
	return gated{conn, &n.sending}, nil
}

// cut closes all connections, and refuses new ones until heal is called.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isCut = true
	for _, conn := range n.conns {
		_ = conn.Close()
	}
	n.conns = nil
}

// heal allows connections again.
func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isCut = false
}
