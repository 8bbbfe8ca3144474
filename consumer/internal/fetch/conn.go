package fetch

import (
	"errors"
	"net"
	"sync/atomic"
	"time"
)

// conn is a connection that ends when no byte comes while an answer is due. Each byte extends the deadline.
type conn struct {
	net.Conn
	*traffic
	opened time.Time
	due    atomic.Int64 // when the next byte must have come, in nanoseconds since opened
}

// traffic is what a link and its connection have in common.
type traffic struct {
	maxWait  atomic.Int64 // how long the broker may wait for messages before it answers, in nanoseconds
	silence  atomic.Int64 // how long it may then send no byte, in nanoseconds
	received atomic.Int64 // number of bytes read

	failure atomic.Pointer[error] // the first error of Read or Write; nil for none
}

// fails keeps the first error.
func (t *traffic) fails(err error) {
	if err != nil {
		t.failure.CompareAndSwap(nil, &err)
	}
}

// isSilent returns whether the connection has failed because no byte came in time.
func (t *traffic) isSilent() bool {
	err := t.failure.Load()
	if err == nil {
		return false
	}
	timeout, ok := errors.AsType[net.Error](*err)
	return ok && timeout.Timeout()
}

// Write sends a request. After an error it returns that error: sarama goes on with the handshake after a read that timed out.
func (c *conn) Write(b []byte) (int, error) {
	if err := c.failure.Load(); err != nil {
		return 0, *err
	}
	n, err := c.Conn.Write(b)
	c.fails(err)
	c.extend(c.maxWait.Load() + c.silence.Load())
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
		c.extend(c.silence.Load())
	}
	c.fails(err)
	return n, err
}

// extend sets the deadline of the next byte; by is in nanoseconds.
func (c *conn) extend(by int64) { c.due.Store(int64(time.Since(c.opened)) + by) }

// isDue returns whether the next byte should have come by now.
func (c *conn) isDue() bool { return int64(time.Since(c.opened)) > c.due.Load() }

// SetReadDeadline does nothing: Read sets the deadline of each read itself.
func (c *conn) SetReadDeadline(time.Time) error { return nil }

// SetDeadline sets the deadline of writes alone.
func (c *conn) SetDeadline(t time.Time) error { return c.SetWriteDeadline(t) }
