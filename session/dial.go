package session

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"syscall"
	"time"
)

const (
	shortCap  = time.Second      // least time limit of a handshake, where T/4 allows it
	warnEvery = 10 * time.Second // between two warnings of failed connections
)

// dial is go-zookeeper's dialer. It ignores the address that it is given, and asks hosts for one.
func (c *client) dial(string, string, time.Duration) (net.Conn, error) {
	if err := c.mayConnect(); err != nil {
		return nil, err
	}
	t, err := c.hosts.next(c.ctx)
	c.trying()
	if err != nil {
		return nil, err
	}
	limit := c.handshakeCap()
	ctx, cancel := context.WithTimeout(c.ctx, limit)
	defer cancel()
	raw, err := c.dialTarget(ctx, t)
	if err != nil {
		c.attemptFailed(t.address, err)
		return nil, err
	}
	c.hosts.accepted = true
	n := newNetConn(c, raw, t.address, limit)
	c.mu.Lock()
	c.conn = n
	c.mu.Unlock()
	if err := c.mayConnect(); err != nil {
		_ = n.Close() // never fails
		return nil, err
	}
	return n, nil
}

// trying records that go-zookeeper is working on a connection, so it does not hang.
func (c *client) trying() {
	c.mu.Lock()
	c.tried = c.s.now()
	c.mu.Unlock()
}

// dialTarget connects to t, with TLS if Options has it.
func (c *client) dialTarget(ctx context.Context, t target) (net.Conn, error) {
	dial := c.opts.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	raw, err := dial(ctx, "tcp", t.address)
	if err != nil || c.opts.TLS == nil {
		return raw, err
	}
	config := c.opts.TLS.Clone()
	if config.ServerName == "" {
		config.ServerName = t.host
	}
	secure := tls.Client(raw, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = raw.Close() // the error of the handshake matters, not this one
		return nil, c.explain(t.address, fmt.Errorf("tls to %s: %w", t.address, err))
	}
	return secure, nil
}

// handshakeCap returns how long a server may take to accept the connection, and then once more to answer the handshake: long
// enough for a slow path, short enough to try several servers before trust ends. Without a trusted incarnation it may be longer:
// a path that is slow, but fast enough for a session, would otherwise never lead to one.
func (c *client) handshakeCap() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := c.trust.timeout / 4
	if c.inc == nil {
		most = c.trust.timeout * 2 / 3
	}
	return min(c.hosts.patience(max(shortCap, 2*c.rtt)), most)
}

// explain names the server in err, and what is usually wrong, when the server has closed the connection during the handshake or
// answered in another protocol: err alone may be no more than "EOF". explain returns other errors as they are.
func (c *client) explain(address string, err error) error {
	var did string
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		did = "closed the connection during the handshake"
	case noTLS, errors.Is(err, errFrame):
		did = "does not answer as a ZooKeeper server"
	default:
		return err
	}
	ask := "is it a ZooKeeper client port, does it expect TLS, has it a quorum?"
	if c.opts.TLS != nil {
		ask = "is it a ZooKeeper client port with TLS, does it accept our certificate, has it a quorum?"
	}
	return fmt.Errorf("%s %s: %s (%w)", address, did, ask, err)
}

// attemptFailed records and logs why a connection attempt failed.
func (c *client) attemptFailed(address string, err error) {
	if c.ctx.Err() != nil {
		return // the client itself has ended the attempt
	}
	if isTimeout(err) {
		c.hosts.timeouts.Add(1)
	} else {
		c.hosts.timeouts.Store(0) // the path is not slow, only this server is
	}
	c.s.recordError(err)
	level := slog.LevelDebug
	now := c.s.now()
	c.mu.Lock()
	if c.warnAt.reached(now) {
		level = slog.LevelWarn // once in a while, so that a log without warnings means that all is well
		c.warnAt = now.add(warnEvery)
	}
	c.mu.Unlock()
	c.log.Log(c.ctx, level, "connection failed", keyServer, address, keyError, err)
}

// isTimeout reports whether err says that a time limit has passed.
func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}
