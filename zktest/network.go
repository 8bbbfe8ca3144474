package zktest

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Direction is one direction of a connection, or both.
type Direction int

// The directions.
const (
	ToServer Direction = 1 << iota
	ToClient
	Both = ToServer | ToClient
)

// Network is a virtual network in memory. It works inside of testing/synctest: a goroutine that waits on it is durably blocked,
// and its delays pass in virtual time. Unlike net.Pipe, and like TCP, it has buffers: a write returns before the other side
// reads, while less than 4 MiB are in flight.
//
// The methods of [Network] make faults of all connections, those of [Client] faults of one client's connections. Faults apply to
// connections that exist and to later ones. The methods may be called from any goroutine and never wait, except Dial and the
// methods of connections.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*listener
	clients   map[string]*Client
	links     map[*link]struct{}
	fault     linkFault
}

// linkFault is the faults of a client's connections, or of all connections.
type linkFault struct {
	refuse bool          // Refuse
	hole   Direction     // BlackHole; 0 is none
	delay  time.Duration // Delay
}

// NewNetwork returns an empty network. For a bubble, call it inside of the bubble.
func NewNetwork() *Network {
	return &Network{listeners: map[string]*listener{}, clients: map[string]*Client{}, links: map[*link]struct{}{}}
}

// Client is a named client of a [Network]. Its methods make faults of this client's connections, and [Server.Sessions] has its
// name.
type Client struct {
	net   *Network
	name  string
	fault linkFault
}

// Client returns the client of that name. The first call makes it.
func (n *Network) Client(name string) *Client {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.clients[name]
	if c == nil {
		c = &Client{net: n, name: name}
		n.clients[name] = c
	}
	return c
}

// Dial connects as the client "client". See [Client.Dial].
func (n *Network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return n.Client("client").Dial(ctx, network, address)
}

// Dial connects to the listener of that address, and ignores network. Without a listener, or after Refuse, it fails with
// ECONNREFUSED. While a direction is a black hole it waits until that is healed or ctx ends.
func (c *Client) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.dial(ctx, address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: addr(address), Err: err}
	}
	return conn, nil
}

func (c *Client) dial(ctx context.Context, address string) (net.Conn, error) {
	n := c.net
	probe := n.newLink(c)
	defer n.forget(probe)
	var roundTrip time.Duration
	for {
		n.mu.Lock()
		changed := probe.up.changed()
		hole, delay := c.hole(), c.delay()
		n.mu.Unlock()
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		if hole == 0 {
			roundTrip = 2 * delay
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	if roundTrip > 0 {
		timer := time.NewTimer(roundTrip)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.listeners[address]
	if l == nil || c.fault.refuse || n.fault.refuse {
		return nil, os.NewSyscallError("connect", syscall.ECONNREFUSED)
	}
	k := &link{net: n, client: c}
	k.up, k.down = newHalf(k, ToServer), newHalf(k, ToClient)
	n.links[k] = struct{}{}
	here := &end{link: k, in: k.down, out: k.up, local: addr(c.name), remote: addr(address)}
	there := &end{link: k, in: k.up, out: k.down, local: addr(address), remote: addr(c.name)}
	here.init()
	there.init()
	l.queue = append(l.queue, there)
	l.kick()
	return here, nil
}

// newLink registers a link that carries nothing: a dialer waits on it for a fault to heal.
func (n *Network) newLink(c *Client) *link {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := &link{net: n, client: c}
	k.up, k.down = newHalf(k, ToServer), newHalf(k, ToClient)
	n.links[k] = struct{}{}
	return k
}

// forget removes a link of newLink.
func (n *Network) forget(k *link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.links, k)
}

// hole and delay return the faults of the client's connections, those of the network included. Called with the lock held.
func (c *Client) hole() Direction      { return c.fault.hole | c.net.fault.hole }
func (c *Client) delay() time.Duration { return c.fault.delay + c.net.fault.delay }

// change changes the faults of a client, or of all connections if client is nil, and wakes all that wait on such a connection.
func (n *Network) change(client *Client, f func(*linkFault)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if client == nil {
		f(&n.fault)
	} else {
		f(&client.fault)
	}
	for k := range n.links {
		if client == nil || k.client == client {
			k.up.signal()
			k.down.signal()
		}
	}
}

// cut resets the connections of a client, or all connections if client is nil.
func (n *Network) cut(client *Client) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for k := range n.links {
		if client == nil || k.client == client {
			k.reset()
		}
	}
}

// Cut resets all connections: both sides notice at once, and bytes in flight are lost. New connections are possible.
func (n *Network) Cut() { n.cut(nil) }

// Cut resets the client's connections: both sides notice at once, and bytes in flight are lost. New connections are possible.
func (c *Client) Cut() { c.net.cut(c) }

// Refuse makes dialing fail with "connection refused", until Heal. Connections that exist go on.
func (n *Network) Refuse() { n.change(nil, func(f *linkFault) { f.refuse = true }) }

// Refuse makes the client's dialing fail with "connection refused", until Heal. Connections that exist go on.
func (c *Client) Refuse() { c.net.change(c, func(f *linkFault) { f.refuse = true }) }

// BlackHole holds back everything that is sent in a direction, the end of a connection included, until Heal or Cut. The senders
// don't notice. As with TCP nothing is lost: the bytes arrive after Heal, also from a side that has closed the connection
// meanwhile. Cut loses them. Dialing waits.
func (n *Network) BlackHole(dir Direction) { n.change(nil, func(f *linkFault) { f.hole |= dir }) }

// BlackHole holds back everything that the client sends, receives, or both. See [Network.BlackHole].
func (c *Client) BlackHole(dir Direction) { c.net.change(c, func(f *linkFault) { f.hole |= dir }) }

// Freeze is BlackHole(Both).
func (n *Network) Freeze() { n.BlackHole(Both) }

// Freeze is BlackHole(Both): to others the client looks like a process that is stopped.
func (c *Client) Freeze() { c.BlackHole(Both) }

// Delay delays everything that is sent from now on by d, in each direction; 0 ends it. A client's own delay is added.
func (n *Network) Delay(d time.Duration) { n.change(nil, func(f *linkFault) { f.delay = max(0, d) }) }

// Delay delays everything that the client sends or receives from now on by d; 0 ends it. The network's delay is added.
func (c *Client) Delay(d time.Duration) { c.net.change(c, func(f *linkFault) { f.delay = max(0, d) }) }

// Heal ends Refuse, BlackHole, Delay and Freeze of the network; a client's own faults stay.
func (n *Network) Heal() { n.change(nil, func(f *linkFault) { *f = linkFault{} }) }

// Heal ends Refuse, BlackHole, Delay and Freeze of the client; the network's faults stay.
func (c *Client) Heal() { c.net.change(c, func(f *linkFault) { *f = linkFault{} }) }

// Listen opens a listener at address, which is any text.
func (n *Network) Listen(address string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[address] != nil {
		return nil, &net.OpError{
			Op: "listen", Net: "virtual", Addr: addr(address),
			Err: os.NewSyscallError("bind", syscall.EADDRINUSE),
		}
	}
	l := &listener{net: n, address: address, wake: make(chan struct{}, 1), done: make(chan struct{})}
	n.listeners[address] = l
	return l, nil
}

// listener is a listener of a Network.
type listener struct {
	net     *Network
	address string
	wake    chan struct{} // capacity 1: the queue is not empty
	done    chan struct{} // closed by Close

	queue  []*end // the server ends of connections that were not accepted yet; guarded by the network's mutex
	closed bool   // whether Close was called; guarded by the network's mutex
}

// kick wakes Accept.
func (l *listener) kick() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Accept waits for the next connection.
func (l *listener) Accept() (net.Conn, error) {
	for {
		l.net.mu.Lock()
		if l.closed {
			l.net.mu.Unlock()
			return nil, &net.OpError{Op: "accept", Net: "virtual", Addr: l.Addr(), Err: net.ErrClosed}
		}
		if len(l.queue) > 0 {
			e := l.queue[0]
			l.queue = l.queue[1:]
			if len(l.queue) > 0 {
				l.kick()
			}
			l.net.mu.Unlock()
			return e, nil
		}
		l.net.mu.Unlock()
		select {
		case <-l.wake:
		case <-l.done:
		}
	}
}

// Close closes the listener. Connections that were not accepted are reset.
func (l *listener) Close() error {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	if l.closed {
		return fmt.Errorf("close %s: %w", l.address, net.ErrClosed)
	}
	l.closed = true
	close(l.done)
	delete(l.net.listeners, l.address)
	for _, e := range l.queue {
		e.link.reset()
	}
	l.queue = nil
	return nil
}

// Addr returns the listener's address.
func (l *listener) Addr() net.Addr { return addr(l.address) }

// addr is an address on a virtual network.
type addr string

func (a addr) Network() string { return "virtual" }
func (a addr) String() string  { return string(a) }
