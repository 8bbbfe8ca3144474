package zktest

import (
	"errors"
	"net"
	"time"
)

var errTodo = errors.New("zktest: not written yet")

// Server is an in-memory ZooKeeper server.
type Server struct{ opts Options }

// NewServer returns a server that holds an empty tree. It starts no goroutine.
func NewServer(opts Options) *Server { return &Server{opts: opts} }

// Serve accepts connections on l until Close.
func (s *Server) Serve(l net.Listener) error { return errTodo }

// Close stops the server, closes its listeners and connections, and waits for its goroutines.
func (s *Server) Close() error { return nil }

// Start runs a server on a free TCP port of 127.0.0.1 until the test ends and returns its address.
func Start(tb TB, opts Options) (*Server, string) {
	tb.Helper()
	tb.Fatalf("%v", errTodo)
	return nil, ""
}

// StartVirtual runs a server on a new virtual network at "zk:2181" until the test ends.
func StartVirtual(tb TB, opts Options) (*Server, *Network) {
	tb.Helper()
	tb.Fatalf("%v", errTodo)
	return nil, nil
}

// SessionInfo describes a live session.
type SessionInfo struct {
	ID         int64
	Timeout    time.Duration
	Ephemerals []string // sorted paths
	Watches    int
	Client     string // the client's address, or its name on the virtual network; "" while not connected
	LastTouch  time.Time
	ExpiresAt  time.Time
}

// Stat is a znode's metadata, as ZooKeeper's Stat.
type Stat struct {
	Czxid, Mzxid, Ctime, Mtime  int64
	Version, Cversion, Aversion int32
	EphemeralOwner              int64
	DataLength, NumChildren     int32
	Pzxid                       int64
}

// Op is an operation code of ZooKeeper's wire protocol.
type Op int32

// Request is a client's request as [Server.LoseReply] and [Server.SetHook] see it.
type Request struct {
	Op      Op
	Path    string
	Session int64
	Client  string
	Ops     []Request // the parts of a multi
}

// Stats counts what the server has done since it was made.
type Stats struct {
	Requests                                             map[Op]int
	Sessions, Connections, Watches, Znodes               int
	SessionsCreated, SessionsExpired, SessionsReattached int
	Zxid                                                 int64
}

// Sessions returns the live sessions, sorted by id.
func (s *Server) Sessions() []SessionInfo { return nil }

// KillSession ends a session at once, as if it had expired now; false when there is none.
func (s *Server) KillSession(id int64) bool { return false }

// Freeze stops the server like SIGSTOP stops a process.
func (s *Server) Freeze() {}

// FreezeClock is Freeze in which the sessions' time stands still too.
func (s *Server) FreezeClock() {}

// Thaw ends Freeze.
func (s *Server) Thaw() {}

// RefuseHandshakes makes the server close new connections at once.
func (s *Server) RefuseHandshakes(on bool) {}

// SilentHandshakes makes the server accept connections and never answer their connect request.
func (s *Server) SilentHandshakes(on bool) {}

// LoseReply makes the next n requests that match be executed and their connection dropped before the reply.
func (s *Server) LoseReply(n int, match func(Request) bool) {}

// Down cuts all connections and refuses new ones until Restart.
func (s *Server) Down() {}

// Restart restarts the server, with an empty tree when empty is set.
func (s *Server) Restart(empty bool) {}

// CutAll resets all connections.
func (s *Server) CutAll() {}

// Stats returns counters.
func (s *Server) Stats() Stats { return Stats{} }

// Get returns a znode's data and Stat.
func (s *Server) Get(path string) (data []byte, stat Stat, ok bool) { return nil, Stat{}, false }

// Children returns the sorted names of a znode's children; nil when it is missing.
func (s *Server) Children(path string) []string { return nil }

// Create makes a persistent znode, and its parents as needed.
func (s *Server) Create(path string, data []byte) error { return errTodo }

// Set replaces a znode's data.
func (s *Server) Set(path string, data []byte) error { return errTodo }

// Delete removes a znode and what is below it.
func (s *Server) Delete(path string) error { return errTodo }

// Dump returns the tree as text, a line for each znode.
func (s *Server) Dump() string { return "" }
