package kazoo_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"sync"
)

// The operations before which requests can be stopped, by their codes.
const (
	opDelete  int32 = 2
	opSetData int32 = 5
	opMulti   int32 = 14
)

// stops are where a client's requests stop.
type stops struct {
	mu  sync.Mutex
	all []*stop
}

// stop holds up one request, and those behind it.
type stop struct {
	w       *world
	op      int32
	about   []byte        // what is in it
	reached chan struct{} // closed when there is one
	over    chan struct{} // closed when it goes on
}

// stopBefore stops the next request of a kind that names a path, or the beginning of one, before it is sent.
func (c *client) stopBefore(op int32, path string) *stop {
	s := &stop{w: c.w, op: op, about: []byte(path), reached: make(chan struct{}), over: make(chan struct{})}
	c.stops.mu.Lock()
	defer c.stops.mu.Unlock()
	c.stops.all = append(c.stops.all, s)
	return s
}

// meanwhile waits until the request has been reached, has something happen, and lets it go on.
func (s *stop) meanwhile(happen func()) {
	s.w.Helper()
	s.w.until("the request that is to be stopped", func() bool {
		select {
		case <-s.reached:
			return true
		default:
			return false
		}
	})
	happen()
	close(s.over)
}

// take returns the stop for a request, if there is one, which is used up.
func (s *stops) take(op int32, body []byte) *stop {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, one := range s.all {
		if one.op == op && bytes.Contains(body, one.about) {
			s.all = append(s.all[:i:i], s.all[i+1:]...)
			return one
		}
	}
	return nil
}

// dialer returns one whose connections stop at s; dial is nil for the network's.
func (s *stops) dialer(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &stoppedConn{Conn: conn, stops: s}, nil
	}
}

type stoppedConn struct {
	net.Conn
	stops *stops
}

// Write takes one whole request.
func (c *stoppedConn) Write(frame []byte) (int, error) {
	const header = 4 + 4 + 4
	if len(frame) >= header {
		op := int32(binary.BigEndian.Uint32(frame[header-4:]))
		if s := c.stops.take(op, frame[header:]); s != nil {
			close(s.reached)
			select {
			case <-s.over:
			case <-s.w.Context().Done():
			}
		}
	}
	return c.Conn.Write(frame)
}
