package zktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// Server is an in-memory ZooKeeper server. Its methods may be called from any goroutine. None of them waits for a client, except
// Serve. Close waits for hooks to return.
type Server struct {
	set settings
	wg  sync.WaitGroup // all goroutines and the timer

	// mu guards everything below. It is never held while anything blocks.
	mu           sync.Mutex
	closed       bool
	listeners    []net.Listener     // in the order of their Serve
	conns        map[*conn]struct{} // open connections
	tree         tree
	zxid         int64 // the last zxid
	sessions     map[int64]*session
	lastID       int64 // the last session id
	dataWatches  *watchTable
	childWatches *watchTable
	containers   map[string]struct{} // the paths of container znodes
	clock        clock
	faults       faults
	stats        Stats
	received     int   // how many packets and four-letter words all connections have received
	sent         int   // how many packets, and answers to four-letter words, all connections have sent
	failed       error // why the listener of StartTCP failed
}

// NewServer returns a server with an empty tree. It starts no goroutine.
func NewServer(opts Options) *Server {
	return &Server{
		set:          opts.settings(),
		conns:        map[*conn]struct{}{},
		tree:         newTree(),
		sessions:     map[int64]*session{},
		containers:   map[string]struct{}{},
		dataWatches:  newWatchTable(),
		childWatches: newWatchTable(),
		stats:        Stats{Requests: map[Op]int{}},
	}
}

// Serve accepts connections on l until Close, which closes l and makes Serve return nil, or until l fails. Any number of
// listeners may be served at the same time.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return l.Close()
	}
	s.listeners = append(s.listeners, l)
	s.clock.start()
	s.wg.Add(1)
	s.mu.Unlock()
	defer s.wg.Done()
	for {
		nc, err := l.Accept()
		if err != nil {
			s.mu.Lock()
			closed := s.closed
			s.listeners = slices.DeleteFunc(s.listeners, func(o net.Listener) bool { return o == l })
			s.mu.Unlock()
			if closed || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		s.accept(nc, l.Addr().String())
	}
}

// accept starts serving a connection.
func (s *Server) accept(nc net.Conn, listener string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.faults.down || s.faults.refuse {
		_ = nc.Close()
		return
	}
	c := newConn(s, nc, listener)
	s.conns[c] = struct{}{}
	s.wg.Go(c.readLoop)
	s.wg.Go(c.writeLoop)
}

// Close stops the server: it closes the listeners and connections and waits until the server's goroutines have ended. It does not
// close sessions: to clients it looks like a crash. More calls do nothing. Close returns an error only if the listener of
// [StartTCP] has failed.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.disarm()
	for _, l := range s.listeners {
		_ = l.Close()
	}
	for c := range s.conns {
		c.drop(false)
	}
	s.mu.Unlock()
	s.wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// StartTCP starts a server that listens on a TCP address, "host:port", and returns the address on which it listens. Port 0 is any
// free port; "" is 127.0.0.1:0. The server serves until [Server.Close]; ctx bounds the start alone. StartTCP returns an error if
// it can't listen, for instance because the port is in use; then nothing is started. If the listener fails later, the server logs
// that to [Options].Logger, and Close returns it.
//
// In a test [Start] is shorter. For a listener of another kind, or more than one, use [NewServer] and [Server.Serve].
func StartTCP(ctx context.Context, address string, opts Options) (srv *Server, listening string, err error) {
	if err := ctx.Err(); err != nil { // Listen looks at ctx only while it asks for a name, and not always then
		return nil, "", fmt.Errorf("zktest: %w", err)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", cmp.Or(address, anyPort))
	if err != nil {
		return nil, "", fmt.Errorf("zktest: %w", err)
	}
	s := NewServer(opts)
	s.wg.Go(func() { s.serveOrReport(l) })
	return s, l.Addr().String(), nil
}

// anyPort is the address of any free port of the local machine.
const anyPort = "127.0.0.1:0"

// serveOrReport serves l until Close. If l fails before, it logs the error and keeps it for Close.
func (s *Server) serveOrReport(l net.Listener) {
	err := s.Serve(l)
	if err == nil {
		return
	}
	s.set.log.Error("listener failed", "address", l.Addr().String(), "error", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = fmt.Errorf("zktest: serve %s: %w", l.Addr(), err)
}

// Start runs a server on a free TCP port of 127.0.0.1 until the test ends and returns its address.
func Start(tb TB, opts Options) (*Server, string) {
	tb.Helper()
	l, err := net.Listen("tcp", anyPort) //nolint:noctx // returns at once
	if err != nil {
		tb.Fatalf("zktest: listen: %v", err)
	}
	return run(tb, opts, l), l.Addr().String()
}

// VirtualAddress is where [StartVirtual] listens.
const VirtualAddress = "zk:2181"

// StartVirtual runs a server on a new virtual network, at "zk:2181", until the test ends. For a testing/synctest bubble, call it
// inside of the bubble.
func StartVirtual(tb TB, opts Options) (*Server, *Network) {
	tb.Helper()
	n := NewNetwork()
	l, err := n.Listen(VirtualAddress)
	if err != nil {
		tb.Fatalf("zktest: listen: %v", err)
	}
	return run(tb, opts, l), n
}

// run serves l until the test ends.
func run(tb TB, opts Options, l net.Listener) *Server {
	s := NewServer(opts)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	tb.Cleanup(func() {
		_ = s.Close()
		<-done
	})
	return s
}

// begin begins a transaction, which takes the next zxid. Called with the lock held.
func (s *Server) begin(session int64, who []identity) *txn {
	s.zxid++
	return &txn{tree: s.tree, zxid: s.zxid, time: time.Now().UnixMilli(), session: session, who: who}
}

// commit commits a transaction: it adds ephemeral znodes to their sessions and sends events to the clients that watch. Called
// with the lock held.
func (s *Server) commit(t *txn) {
	for _, e := range t.events {
		if e.kind != eventCreated && e.kind != eventDeleted {
			continue
		}
		if ses := s.sessions[e.owner]; ses != nil && e.kind == eventCreated {
			ses.ephemerals[e.path] = struct{}{}
		} else if ses != nil {
			delete(ses.ephemerals, e.path)
		}
		if n := s.tree[e.path]; n != nil && n.container {
			s.containers[e.path] = struct{}{}
			s.arm()
		} else {
			delete(s.containers, e.path)
		}
	}
	s.fire(t.zxid, t.events)
}
