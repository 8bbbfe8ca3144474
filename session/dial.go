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

	"github.com/kielgo/kiel/internal/sabotage"
)

const (
	shortCap  = time.Second      // of a handshake
	warnEvery = 10 * time.Second // of connections that fail, at the most
)

// dial is go-zookeeper's dialer.
func (c *client) dial(string, string, time.Duration) (net.Conn, error) {
	if err := c.refused(); err != nil {
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
	if err := c.refused(); err != nil {
		_ = n.Close() // it always succeeds
		return nil, err
	}
	return n, nil
}

// trying notes that go-zookeeper is at work on a connection: it does not hang.
func (c *client) trying() {
	c.mu.Lock()
	c.tried = c.s.now()
	c.mu.Unlock()
}

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
		_ = raw.Close() // the handshake's error is the one that matters
		return nil, c.explain(t.address, fmt.Errorf("tls to %s: %w", t.address, err))
	}
	return secure, nil
}

// handshakeCap is how long a server may take to accept the connection, and then once more to answer the handshake: long
// enough for a slow path, short enough to try several servers before trust ends. When there is no trust to lose any more it
// may be longer, or a path that is slow, but not too slow for a session, would never be long enough.
func (c *client) handshakeCap() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.off.Off(sabotage.HandshakeCap) {
		return c.trust.timeout * 2 / 3 * 10
	}
	most := c.trust.timeout / 4
	if c.inc == nil {
		most = c.trust.timeout * 2 / 3
	}
	return min(c.hosts.patience(max(shortCap, 2*c.rtt)), most)
}

// explain says what is usually wrong when a server closes the connection in the handshake, or answers in some other
// protocol: the error alone does not name the server and may be no more than "EOF". Other errors it returns as they are.
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

// attemptFailed notes why a connection could not be had.
func (c *client) attemptFailed(address string, err error) {
	if isTimeout(err) {
		c.hosts.timeouts.Add(1)
	} else {
		c.hosts.timeouts.Store(0) // the path is not slow, only this server is
	}
	c.s.note(err)
	level := slog.LevelDebug
	now := c.s.now()
	c.mu.Lock()
	if c.warnAt.reached(now) {
		level = slog.LevelWarn // once in a while, so that silence means all is well
		c.warnAt = now.add(warnEvery)
	}
	c.mu.Unlock()
	c.log.Log(c.ctx, level, "connection failed", keyServer, address, keyError, err)
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}
