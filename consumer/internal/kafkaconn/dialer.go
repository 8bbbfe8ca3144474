package kafkaconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/IBM/sarama"
)

// Dialer opens the connections of one client and can abort them all.
type Dialer struct {
	life context.Context //nolint:containedctx // the lifetime of every connection
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	tls  bool // sarama puts TLS on the connections

	// Reach is notified of answers and failures on the connections. It is set before the first Dial; nil is allowed.
	Reach *Reach

	dials atomic.Int64

	mu    sync.Mutex
	conns map[*conn]struct{}
	gates map[*writeGate]struct{}

	closing Calls // counts the Close calls of aborted connections
}

// AbortTimeout bounds the wait for aborted connections: a connection of the user's own dialer may never close.
const AbortTimeout = time.Second

// writeGate is a check before each write; an error refuses the write.
type writeGate struct{ beforeWrite func() error }

// errProtocol is the error of a connection on which one side uses TLS and the other does not.
var errProtocol = errors.New("TLS on one side alone")

// NewDialer returns a dialer that dials as the user's configuration says. On Linux a connection ends when written data is not
// acknowledged for userTimeout (TCP_USER_TIMEOUT, RFC 5482); 0 leaves the time to the system.
func NewDialer(life context.Context, config *sarama.Config, userTimeout time.Duration) *Dialer {
	d := &Dialer{life: life, tls: config.Net.TLS.Enable, conns: map[*conn]struct{}{}, gates: map[*writeGate]struct{}{}}
	if config.Net.Proxy.Enable {
		d.dial = func(_ context.Context, network, address string) (net.Conn, error) {
			return config.Net.Proxy.Dialer.Dial(network, address)
		}
		return d
	}
	nd := &net.Dialer{
		Timeout:   min(config.Net.DialTimeout, MaxControlWait),
		KeepAlive: config.Net.KeepAlive,
		LocalAddr: config.Net.LocalAddr,
		Control: func(network, _ string, c syscall.RawConn) error {
			if !isTCP(network) {
				return nil
			}
			return setUserTimeout(c, userTimeout)
		},
	}
	d.dial = nd.DialContext
	return d
}

// isTCP reports whether connections of a network are TCP's, as those to brokers are.
func isTCP(network string) bool { return strings.HasPrefix(network, "tcp") }

// Dial opens a connection that ends with the dialer's lifetime. A connection that is not TCP's goes to a name server: it is
// returned as it is, and ends by a deadline of package net.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	if d.Closed() {
		return nil, net.ErrClosed
	}
	nc, err := d.dial(d.life, network, address)
	if !isTCP(network) {
		return nc, err
	}
	if err != nil {
		if !d.Closed() {
			d.Reach.failed(err)
		}
		return nil, err
	}
	c := &conn{Conn: nc, of: d, address: address}
	d.dials.Add(1)
	d.mu.Lock()
	d.conns[c] = struct{}{}
	d.mu.Unlock()
	if d.Closed() { // Abort may have run before c was in the map
		c.abort()
		return nil, net.ErrClosed
	}
	return c, nil
}

// Dials returns how many connections were opened. It does not block.
func (d *Dialer) Dials() int64 { return d.dials.Load() }

// Closed reports whether the lifetime of the dialer has ended.
func (d *Dialer) Closed() bool { return d.life.Err() != nil }

// Gate makes every connection call beforeWrite before it writes, until release is called. An error of beforeWrite ends the
// connection instead. The check must come at the write, because between a decision to send and the write there may be a dial, a
// handshake, another request on the same connection, or a stop of the process. Abort alone is not enough: it ends only the
// connections that are open when it is called, and is called late in a process that was stopped.
func (d *Dialer) Gate(beforeWrite func() error) (release func()) {
	g := &writeGate{beforeWrite: beforeWrite}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gates[g] = struct{}{}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.gates, g)
	}
}

// beforeWrite returns nil if a connection may write now.
func (d *Dialer) beforeWrite() error {
	d.mu.Lock()
	gates := slices.Collect(maps.Keys(d.gates))
	d.mu.Unlock()
	for _, g := range gates {
		if err := g.beforeWrite(); err != nil {
			return err
		}
	}
	return nil
}

// Abort closes all connections at once. Bytes that were written and not yet sent are dropped, so that a commit can't arrive
// later. Abort waits until the connections are closed, for AbortTimeout at most, and no longer than the dialer lives.
func (d *Dialer) Abort() {
	d.mu.Lock()
	conns := slices.Collect(maps.Keys(d.conns))
	d.mu.Unlock()
	for _, c := range conns {
		c.abort()
	}
	ctx, cancel := context.WithTimeout(d.life, AbortTimeout)
	defer cancel()
	Await(ctx, d.closing.Ended())
}

// Wait returns when no connection that was aborted is still being closed.
func (d *Dialer) Wait() { d.closing.Wait() }

// conn is one connection of a Dialer.
type conn struct {
	net.Conn
	of      *Dialer
	address string
	closed  chan struct{} // closed when Close has returned; nil before Close; guarded by of.mu

	answered bool  // a byte was read
	wrong    error // the error of a peer that does not speak Kafka's protocol; nil for one that does
}

// Read returns errors that name the address and a likely cause if the connection fails before the first byte. sarama's own errors
// say "EOF", or name no address. Read is called by one goroutine at a time, as sarama does.
func (c *conn) Read(b []byte) (int, error) {
	if c.wrong != nil {
		return 0, c.wrong
	}
	n, err := c.Conn.Read(b)
	if n > 0 && !c.answered {
		c.answered = true
		// A TLS record begins with its type (RFC 8446). As the first byte of a length of Kafka's it would mean over 300 MB.
		if isTLS := b[0] >= 0x14 && b[0] <= 0x17; isTLS != c.of.tls {
			c.wrong = c.explain("does not answer as a Kafka broker", errProtocol)
			c.of.Reach.failed(c.wrong)
			return 0, c.wrong
		}
	}
	c.note(n, err)
	if c.answered || err == nil {
		return n, err
	}
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		err = c.explain("closed the connection before it answered", err)
	}
	return 0, err
}

// note reports the result of a Read to the dialer's Reach. The end of a connection that has answered is no failure: brokers close
// idle connections. The end of a connection that this program has closed is none either.
func (c *conn) note(read int, err error) {
	switch {
	case read > 0:
		c.of.Reach.answered()
	case err == nil, c.isClosed():
	case !c.answered, errors.Is(err, os.ErrDeadlineExceeded):
		c.of.Reach.failed(err)
	}
}

// isClosed reports whether Close was called.
func (c *conn) isClosed() bool {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	return c.closed != nil
}

// explain returns an error that names the address and the usual mistakes.
func (c *conn) explain(did string, err error) error {
	ask := "is it a Kafka listener, does it expect TLS?"
	if c.of.tls {
		ask = "is it a Kafka listener with TLS?"
	}
	return fmt.Errorf("%.100q %s: %s (%w)", c.address, did, ask, err)
}

// Write calls the dialer's gates before it writes.
func (c *conn) Write(b []byte) (int, error) {
	if err := c.of.beforeWrite(); err != nil {
		c.abort()
		return 0, err
	}
	return c.Conn.Write(b)
}

// abort closes the connection. It does not block.
func (c *conn) abort() { c.of.closing.Start(func() { _ = c.Close() }) }

// Close closes the connection, and drops bytes that were written and not sent. It must drop them, because no later Abort finds
// the connection. The connection leaves the dialer last, and a second call waits for the first: otherwise an Abort could return
// while sarama is still closing the connection.
func (c *conn) Close() error {
	c.of.mu.Lock()
	closed := c.closed
	if closed == nil {
		c.closed = make(chan struct{})
	}
	c.of.mu.Unlock()
	if closed != nil {
		<-closed
		return nil
	}
	if l, ok := c.Conn.(interface{ SetLinger(sec int) error }); ok {
		_ = l.SetLinger(0) // the connection may be gone already
	}
	err := c.Conn.Close()
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	delete(c.of.conns, c)
	close(c.closed)
	return err
}
