package fetch

import (
	"net"
	"sync/atomic"
	"time"
)

// conn is a connection that ends when no byte comes while an answer is due. Each byte extends the deadline by 5 s.
type conn struct {
	net.Conn
	opened   time.Time
	due      atomic.Int64  // when the next byte must have come, in nanoseconds since opened
	maxWait  *atomic.Int64 // how long the broker may wait for messages before it answers, in nanoseconds
	received *atomic.Int64 // number of bytes read
	failed   *atomic.Bool  // Read or Write has returned an error
}

// Write sends a request. The first byte of its answer is due 5 s after the time that the broker may wait for messages.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err != nil {
		c.failed.Store(true)
	}
	c.extend(time.Duration(c.maxWait.Load()) + silence)
	return n, err
}

// Read waits for bytes until the next one must have come.
func (c *conn) Read(b []byte) (int, error) {
	n, err := 0, c.Conn.SetReadDeadline(c.opened.Add(time.Duration(c.due.Load())))
	if err == nil {
		n, err = c.Conn.Read(b)
	}
	if n > 0 {
		c.received.Add(int64(n))
		c.extend(silence)
	}
	if err != nil {
		c.failed.Store(true)
	}
	return n, err
}

// extend sets the deadline of the next byte.
func (c *conn) extend(by time.Duration) { c.due.Store(int64(time.Since(c.opened) + by)) }

// SetReadDeadline does nothing: Read sets the deadline of each read itself.
func (c *conn) SetReadDeadline(time.Time) error { return nil }

// SetDeadline sets the deadline of writes alone.
func (c *conn) SetDeadline(t time.Time) error { return c.SetWriteDeadline(t) }
