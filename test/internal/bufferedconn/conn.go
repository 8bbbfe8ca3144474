// Package bufferedconn gives connections in memory a send buffer, as sockets have and a [net.Pipe] has not. Without it a writer
// that holds a mutex waits for the reader, and virtual time does not pass while another goroutine waits for that mutex.
package bufferedconn

import (
	"net"
	"sync"
)

// Conn is a connection whose Write returns at once.
type Conn struct {
	net.Conn

	closing func() // called by the first Close; nil for nothing
	mu      sync.Mutex
	buf     []byte        // what was not written yet
	wake    chan struct{} // holds an element when buf has grown
	closed  chan struct{} // closed by Close
	once    sync.Once
}

// New returns c with a send buffer. The first Close calls closing, unless that is nil. A goroutine writes the buffer until then.
func New(c net.Conn, closing func()) *Conn {
	b := &Conn{Conn: c, closing: closing, wake: make(chan struct{}, 1), closed: make(chan struct{})}
	go b.write()
	return b
}

// Write puts p into the buffer. An error of writing shows as an end of the connection only.
func (c *Conn) Write(p []byte) (int, error) {
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	default:
	}
	c.mu.Lock()
	c.buf = append(c.buf, p...)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (c *Conn) write() {
	for {
		select {
		case <-c.wake:
		case <-c.closed:
			return
		}
		c.mu.Lock()
		p := c.buf
		c.buf = nil
		c.mu.Unlock()
		if _, err := c.Conn.Write(p); err != nil {
			return
		}
	}
}

// Close closes the connection. What is left in the buffer is dropped.
func (c *Conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		if c.closing != nil {
			c.closing()
		}
	})
	return c.Conn.Close()
}
