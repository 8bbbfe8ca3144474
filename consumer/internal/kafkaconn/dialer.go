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
	"syscall"
	"time"

	"github.com/IBM/sarama"
)

// Dialer opens the connections of one client and can end them all: sarama's
// calls know no context, so what ends them is their connection.
type Dialer struct {
	life context.Context //nolint:containedctx // the lifetime of every connection
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	tls  bool // sarama puts TLS on the connections

	// Reach is told what comes of the connections. It is set before the first Dial; nil is allowed.
	Reach *Reach

	mu    sync.Mutex
	conns map[*conn]struct{}
	gates map[*writeGate]struct{}

	closing Calls // of connections that were aborted
}

// AbortTimeout bounds the wait for connections that were aborted: one that the
// user's dialer has made may never close.
const AbortTimeout = time.Second

// writeGate says whether what is being sent may still be sent.
type writeGate struct{ beforeWrite func() error }

// errProtocol is why a connection ends whose other side speaks TLS alone, or does not.
var errProtocol = errors.New("TLS on one side alone")

// NewDialer returns a dialer that dials as the user's configuration says. A connection to which
// written data is not acknowledged for userTimeout is dead, where the system
// can do that; 0 leaves it to the system.
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

// Dial opens a connection that ends with the dialer's lifetime. One that is not TCP's is for a question to a name server: it is handed out as
// it is, and ends by a deadline of package net.
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
	d.mu.Lock()
	d.conns[c] = struct{}{}
	d.mu.Unlock()
	if d.Closed() { // Abort may have run before c was in the map
		c.abort()
		return nil, net.ErrClosed
	}
	return c, nil
}

// Closed says whether the lifetime of the dialer has ended.
func (d *Dialer) Closed() bool { return d.life.Err() != nil }

// Gate makes every connection call beforeWrite before it writes, until release is
// called. An error of it ends the connection instead. Between a decision to send
// and the write may lie a dial, a handshake, another's request on the same
// connection, or a stop of the process; Abort finds only what is connected when it
// is called, and is called late in a process that was stopped.
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

// beforeWrite says whether a connection may write now.
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

// Abort ends all connections at once: what was written and not yet sent is
// thrown away, so that a commit can't arrive later. It waits until they are closed,
// AbortTimeout at most, and no longer than the dialer lives.
func (d *Dialer) Abort() {
	d.mu.Lock()
	conns := make([]*conn, 0, len(d.conns))
	for c := range d.conns {
		conns = append(conns, c)
	}
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

type conn struct {
	net.Conn
	of      *Dialer
	address string
	closed  chan struct{} // closed when Close is done; nil before; of.mu is held

	answered bool  // something was read
	wrong    error // why what the other side speaks is of no use
}

// Read explains why a connection is of no use before anything was read from it: the errors that sarama would make of that are
// "EOF", or name no address. It is called by one goroutine at a time, as sarama does.
func (c *conn) Read(b []byte) (int, error) {
	if c.wrong != nil {
		return 0, c.wrong
	}
	n, err := c.Conn.Read(b)
	if n > 0 && !c.answered {
		c.answered = true
		if isTLS := b[0] >= 0x14 && b[0] <= 0x17; isTLS != c.of.tls { // the types of records; as a length it would be over 300 MB
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

// note tells the dialer's Reach what came of reading. A connection that has worked may be closed by a broker that had nothing to do on
// it, which says nothing yet: the next one does. One
// that this program has closed says nothing either.
func (c *conn) note(read int, err error) {
	switch {
	case read > 0:
		c.of.Reach.answered()
	case err == nil, c.isClosed():
	case !c.answered, errors.Is(err, os.ErrDeadlineExceeded):
		c.of.Reach.failed(err)
	}
}

// isClosed returns whether Close was called.
func (c *conn) isClosed() bool {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	return c.closed != nil
}

// explain says what is usually wrong with an address that did so.
func (c *conn) explain(did string, err error) error {
	ask := "is it a Kafka listener, does it expect TLS?"
	if c.of.tls {
		ask = "is it a Kafka listener with TLS?"
	}
	return fmt.Errorf("%.100q %s: %s (%w)", c.address, did, ask, err)
}

// Write asks the dialer's gates first: here is the effect.
func (c *conn) Write(b []byte) (int, error) {
	if err := c.of.beforeWrite(); err != nil {
		c.abort()
		return 0, err
	}
	return c.Conn.Write(b)
}

// abort closes the connection without waiting for that.
func (c *conn) abort() { c.of.closing.Start(func() { _ = c.Close() }) }

// Close throws away what was written and not sent, as who calls it has given that
// up too: after it no Abort finds the connection. So the dialer forgets it last. A
// second call waits for the first, or an Abort could be over while sarama is about to
// close the connection.
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
