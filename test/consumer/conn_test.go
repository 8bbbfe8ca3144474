package consumer_test

import (
	"context"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kfake"
)

type dialer struct{ n *kfake.VirtualNetwork }

func (d dialer) Dial(network, address string) (net.Conn, error) {
	nc, err := d.n.DialContext(context.Background(), network, address)
	if err != nil {
		return nil, err
	}
	c := &bufferedConn{Conn: nc, wake: make(chan struct{}, 1), closed: make(chan struct{})}
	go c.write()
	return c, nil
}

// bufferedConn has a send buffer, as a socket has and a net.Pipe has not. Without
// it a writer that holds a mutex waits for the reader, and virtual time stands
// still while another waits for the mutex.
type bufferedConn struct {
	net.Conn
	mu     sync.Mutex
	buf    []byte
	wake   chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (c *bufferedConn) Write(b []byte) (int, error) {
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	default:
	}
	c.mu.Lock()
	c.buf = append(c.buf, b...)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (c *bufferedConn) write() {
	for {
		select {
		case <-c.wake:
		case <-c.closed:
			return
		}
		c.mu.Lock()
		b := c.buf
		c.buf = nil
		c.mu.Unlock()
		if _, err := c.Conn.Write(b); err != nil {
			return
		}
	}
}

func (c *bufferedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
