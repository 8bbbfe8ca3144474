package proxy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/test/wait"
)

// Direction is one of a link's, or both.
type Direction int

// The directions.
const (
	ToServer Direction = 1 << iota
	ToClient
	Both = ToServer | ToClient
)

// Speed is how slow a link is in one direction. The zero value is as fast as it can be.
type Speed struct {
	Latency time.Duration
	Jitter  time.Duration // each piece takes up to that much longer, at random
	Rate    int           // bytes a second, 0 is no limit
}

// Ports lie below the range from which the kernel takes ports for outgoing connections, so that they stay ours while connections
// are refused, and below the range of servers.FreePorts, where servers would find them taken. Links of other processes leave them
// alone, too: see reserve.
const (
	firstPort = 10000
	lastPort  = 15000
)

const (
	listenTries  = 100
	healPatience = 5 * time.Second
	dialTimeout  = 5 * time.Second
	dialPause    = 10 * time.Millisecond
)

// Link leads connections to one address.
type Link struct {
	tb     testing.TB
	target string
	addr   string
	frames bool // ZooKeeper's frames are looked at
	// How long an accepted connection waits for a server that refuses it, before it is reset. A follower that is refused by a
	// leader that does not listen yet tries again; one that is reset looks for another leader.
	patience time.Duration
	first    func([]byte) []byte // when set: what becomes of the first bytes that a client sends
	ctx      context.Context     //nolint:containedctx // of the test
	wg       sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil while connections are refused
	conns    map[*conn]bool
	faults   faults
	changed  chan struct{} // closed when faults have changed
	losses   []*loss
	session  Session
}

// faults is what is wrong with a link.
type faults struct {
	held   Direction
	silent bool
	speed  map[Direction]Speed
}

// New returns a link to an address, which speaks any protocol. It ends with the test.
func New(tb testing.TB, target string) *Link {
	tb.Helper()
	return start(tb, &Link{target: target})
}

func start(tb testing.TB, l *Link) *Link {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	l.tb, l.ctx = tb, ctx
	l.conns, l.changed, l.faults = make(map[*conn]bool), make(chan struct{}), faults{speed: make(map[Direction]Speed)}
	var err error
	var free func()
	for range listenTries {
		port := firstPort + rand.IntN(lastPort-firstPort)
		l.addr = fmt.Sprintf("127.0.0.1:%d", port)
		if free, err = l.reserve(port); err != nil {
			continue
		}
		if err = l.listen(); err == nil {
			break
		}
		free()
	}
	if err != nil {
		tb.Fatalf("proxy to %s: %v", l.target, err)
	}
	tb.Cleanup(func() {
		cancel()
		l.Refuse()
		l.wg.Wait()
		free()
	})
	return l
}

// reserve keeps links, also those of other processes, away from a port at which nobody listens: connections are refused there.
// The reservation is a name among Linux's abstract sockets, which goes with its process.
func (l *Link) reserve(port int) (free func(), err error) {
	if runtime.GOOS != "linux" {
		return func() {}, nil
	}
	listener, err := new(net.ListenConfig).Listen(l.ctx, "unix", fmt.Sprintf("@kiel-proxy-%d", port))
	if err != nil {
		return nil, err
	}
	return func() { _ = listener.Close() }, nil // it always succeeds
}

// Addr is where to connect to.
func (l *Link) Addr() string { return l.addr }

// listen accepts connections again, if that was refused.
func (l *Link) listen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listener != nil {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(l.ctx, "tcp", l.addr)
	if err != nil {
		return err
	}
	l.listener = listener
	l.wg.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return // closed
			}
			l.accept(listener, c)
		}
	})
	return nil
}

func (l *Link) accept(listener net.Listener, client net.Conn) {
	c := newConn(l, client)
	l.mu.Lock()
	welcome := l.listener == listener
	if welcome {
		l.conns[c] = true
		l.wg.Go(c.run)
	}
	l.mu.Unlock()
	if !welcome {
		c.reset()
	}
}

// Connections returns how many connections there are.
func (l *Link) Connections() int { return len(l.connections()) }

// Cut resets all connections. New ones are accepted.
func (l *Link) Cut() {
	for _, c := range l.connections() {
		c.reset()
	}
}

// Refuse resets all connections, and refuses new ones until Heal.
func (l *Link) Refuse() {
	l.close()
	l.Cut()
}

// CutClients resets the clients' ends of all connections and refuses new ones until Heal. The server sees silence on its ends;
// what it sends into them is lost.
func (l *Link) CutClients() {
	l.close()
	for _, c := range l.connections() {
		c.resetClient()
	}
}

func (l *Link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listener != nil {
		_ = l.listener.Close() // nothing can be done about it
		l.listener = nil
	}
}

// BlackHole holds all that is sent in a direction, the ends of connections included, until Heal.
func (l *Link) BlackHole(d Direction) { l.change(func(f *faults) { f.held |= d }) }

// Silence accepts new connections and leads them nowhere until Heal.
func (l *Link) Silence() { l.change(func(f *faults) { f.silent = true }) }

// Slow makes a direction slow until Heal.
func (l *Link) Slow(d Direction, s Speed) {
	l.change(func(f *faults) {
		for _, one := range []Direction{ToServer, ToClient} {
			if d&one != 0 {
				f.speed[one] = s
			}
		}
	})
}

// Heal ends all faults. Connections of which one end was reset are reset at the other too.
func (l *Link) Heal() {
	l.tb.Helper()
	for _, c := range l.connections() {
		if c.half.Load() {
			c.reset()
		}
	}
	l.mu.Lock()
	l.losses = nil
	l.mu.Unlock()
	l.change(func(f *faults) { *f = faults{speed: make(map[Direction]Speed)} })
	var err error // somebody may be looking whether the port is free
	wait.Until(l.tb, healPatience, func() bool { err = l.listen(); return err == nil },
		func() string { return fmt.Sprintf("proxy to %s: %v", l.target, err) })
}

func (l *Link) change(f func(*faults)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.faults)
	close(l.changed)
	l.changed = make(chan struct{})
}

// passes waits until nothing holds data in that direction.
func (l *Link) passes(d Direction, done <-chan struct{}) bool {
	return l.await(done, func(f faults) bool { return f.held&d == 0 })
}

func (l *Link) await(done <-chan struct{}, ok func(faults) bool) bool {
	for {
		l.mu.Lock()
		fine, changed := ok(l.faults), l.changed
		l.mu.Unlock()
		if fine {
			return true
		}
		select {
		case <-changed:
		case <-done:
			return false
		}
	}
}

func (l *Link) speed(d Direction) Speed {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.faults.speed[d]
}

func (l *Link) connections() []*conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []*conn
	for c := range l.conns {
		list = append(list, c)
	}
	return list
}

func (l *Link) forget(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}
