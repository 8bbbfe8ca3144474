package chaos_test

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/kielgo/kiel/test/members"
)

// idleness notes when a session without a connection does not try to get one: from the end of each connection, or of a dial that
// failed, until the next dial.
type idleness struct {
	mu    sync.Mutex
	ended int64 // members.Monotonic of the end of the last connection or dial; 0 while there is one
	idle  []idle
}

// idle is a pause between two tries to connect.
type idle struct{ from, until int64 }

// dial is for session.Options.
func (i *idleness) dial(ctx context.Context, network, address string) (net.Conn, error) {
	i.begin()
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		i.end()
		return nil, err
	}
	return &notedConn{Conn: conn, ended: sync.OnceFunc(i.end)}, nil
}

func (i *idleness) begin() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended > 0 {
		i.idle = append(i.idle, idle{i.ended, members.Monotonic()})
	}
	i.ended = 0
}

func (i *idleness) end() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended = members.Monotonic()
}

// longest returns the longest pause that ended after since.
func (i *idleness) longest(since int64) (longest time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, p := range i.idle {
		if p.until > since {
			longest = max(longest, time.Duration(p.until-p.from))
		}
	}
	return longest
}

// notedConn calls ended when it ends, by whichever side.
type notedConn struct {
	net.Conn
	ended func()
}

func (c *notedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.ended()
	}
	return n, err
}

func (c *notedConn) Close() error {
	c.ended()
	return c.Conn.Close()
}
