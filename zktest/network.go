package zktest

import (
	"context"
	"net"
	"time"
)

// Direction is a direction of a connection, or both.
type Direction int

// The directions.
const (
	ToServer Direction = 1 << iota
	ToClient
	Both = ToServer | ToClient
)

// Network is a virtual network in memory that works inside testing/synctest.
type Network struct{}

// NewNetwork returns an empty network.
func NewNetwork() *Network { return &Network{} }

// Listen opens a listener at address, which is any text.
func (n *Network) Listen(address string) (net.Listener, error) { return nil, errTodo }

// Dial connects to a listener's address.
func (n *Network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return nil, errTodo
}

// Client returns the client side of that name.
func (n *Network) Client(name string) *Client { return &Client{} }

// Cut resets all connections; new ones are possible.
func (n *Network) Cut() {}

// Heal ends Refuse, BlackHole, Delay and Freeze.
func (n *Network) Heal() {}

// Refuse makes dialing fail with "connection refused".
func (n *Network) Refuse() {}

// BlackHole holds back all that is sent in a direction.
func (n *Network) BlackHole(dir Direction) {}

// Delay delivers each byte d later, in both directions.
func (n *Network) Delay(d time.Duration) {}

// Freeze is BlackHole(Both).
func (n *Network) Freeze() {}

// Client is a named client side of a [Network], so that faults can hit one client.
type Client struct{}

// Dial connects to a listener's address.
func (c *Client) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return nil, errTodo
}

// Cut resets the client's connections; new ones are possible.
func (c *Client) Cut() {}

// Heal ends Refuse, BlackHole, Delay and Freeze.
func (c *Client) Heal() {}

// Refuse makes dialing fail with "connection refused".
func (c *Client) Refuse() {}

// BlackHole holds back all that is sent in a direction.
func (c *Client) BlackHole(dir Direction) {}

// Delay delivers each byte d later, in both directions.
func (c *Client) Delay(d time.Duration) {}

// Freeze is BlackHole(Both).
func (c *Client) Freeze() {}
