package zktest

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
)

// conn is a client's connection. One goroutine reads and executes requests; another one writes the queued packets.
type conn struct {
	srv      *Server
	nc       net.Conn
	client   string        // the client's address
	listener string        // the address of the listener that accepted the connection
	done     chan struct{} // closed when the connection is closed
	wake     chan struct{} // capacity 1: a packet was queued

	once sync.Once // closes the connection

	// Guarded by the server's mutex.
	out            []byte     // the queued packets
	closing        bool       // no more packets are queued; the connection closes when out is written
	mute           bool       // the server never answers the handshake
	session        *session   // nil before the handshake
	received, sent int        // how many packets and four-letter words
	timeout        int64      // the session timeout that this connection has negotiated, in ms
	who            []identity // the identities that the client has proved
}

func newConn(s *Server, nc net.Conn, listener string) *conn {
	client := ""
	if addr := nc.RemoteAddr(); addr != nil {
		client = addr.String()
	}
	host, _, err := net.SplitHostPort(client)
	if err != nil || strings.Trim(host, "0123456789abcdefABCDEF.:") != "" {
		host = "127.0.0.1" // a virtual network has no addresses
	}
	return &conn{
		srv: s, nc: nc, client: client, listener: listener,
		done: make(chan struct{}), wake: make(chan struct{}, 1),
		who: []identity{{scheme: "ip", id: host}},
	}
}

// send queues a packet. Called with the lock held.
func (c *conn) send(frame []byte) {
	if c.closing {
		return
	}
	c.out = append(c.out, frame...)
	c.sent++
	c.srv.sent++
	c.kick()
}

// countReceived counts a packet or a four-letter word. Called with the lock held.
func (c *conn) countReceived() {
	c.received++
	c.srv.received++
}

// finish closes the connection when the queued packets are written. Called with the lock held.
func (c *conn) finish() {
	c.closing = true
	c.kick()
}

// kick wakes the writer.
func (c *conn) kick() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// drop closes the connection at once. With reset, the client sees a reset. Called with the lock held.
func (c *conn) drop(reset bool) {
	c.detach()
	c.once.Do(func() {
		nc := c.nc
		if t, ok := nc.(interface{ NetConn() net.Conn }); ok {
			nc = t.NetConn() // TLS would wait until it has sent its close alert
		}
		if l, ok := nc.(interface{ SetLinger(sec int) error }); ok && reset {
			_ = l.SetLinger(0)
		}
		close(c.done)
		_ = nc.Close()
	})
}

// detach removes the connection, its watches and its queued packets from the server. Called with the lock held.
func (c *conn) detach() {
	s := c.srv
	c.closing, c.out = true, nil
	s.dataWatches.removeConn(c)
	s.childWatches.removeConn(c)
	if c.session != nil && c.session.conn == c {
		c.session.conn = nil
	}
	delete(s.conns, c)
}

// readLoop reads requests and executes them one after the other, or reads a four-letter word.
func (c *conn) readLoop() {
	s := c.srv
	defer func() {
		s.mu.Lock()
		c.drop(false)
		s.mu.Unlock()
	}()
	in := bufio.NewReader(c.nc)
	if first, _ := in.Peek(wordLength); answered(string(first)) || refused(string(first)) {
		if s.word(c, string(first)) {
			c.waitWritten()
		} else {
			_, _ = io.Copy(io.Discard, in) // until the client closes the connection
		}
		return
	}
	frame, err := readFrame(in, s.set.maxPacket)
	if err != nil {
		return
	}
	r, err := decodeConnect(frame)
	if err != nil || !s.handle(c, r) {
		c.waitWritten()
		return
	}
	for {
		if frame, err = readFrame(in, s.set.maxPacket); err != nil {
			return
		}
		if r, err = decodeRequest(frame); err != nil {
			return
		}
		if !s.handle(c, r) {
			c.waitWritten()
			return
		}
	}
}

// waitWritten makes the writer close the connection after the queued packets, and waits until the connection is closed.
func (c *conn) waitWritten() {
	s := c.srv
	s.mu.Lock()
	c.finish()
	s.mu.Unlock()
	<-c.done
}

// writeLoop writes the queued packets.
func (c *conn) writeLoop() {
	s := c.srv
	for {
		select {
		case <-c.wake:
		case <-c.done:
			return
		}
		s.mu.Lock()
		if !s.awaitGate(c) {
			s.mu.Unlock()
			return
		}
		out, closing := c.out, c.closing
		c.out = nil
		if closing && len(out) == 0 {
			c.drop(false)
		}
		s.mu.Unlock()
		if len(out) == 0 {
			continue
		}
		if _, err := c.nc.Write(out); err != nil {
			s.mu.Lock()
			c.drop(false)
			s.mu.Unlock()
			return
		}
		if closing {
			c.kick()
		}
	}
}
