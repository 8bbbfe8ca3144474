package recipetest

import (
	"context"
	"net"
	"sync/atomic"
)

// Traffic counts the bytes that arrive on its connections.
type Traffic struct {
	Connect func(ctx context.Context, network, address string) (net.Conn, error) // opens a connection

	received atomic.Int64
}

// Dial opens a connection whose bytes count. It is for session.Options.
func (t *Traffic) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := t.Connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &counted{Conn: c, received: &t.received}, nil
}

// Received returns how many bytes have arrived so far.
func (t *Traffic) Received() int64 { return t.received.Load() }

// counted is a connection of Traffic.
type counted struct {
	net.Conn

	received *atomic.Int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(n))
	return n, err
}
