package zktest

// faults are the faults of a server.
type faults struct {
	down, refuse, silent bool                 // Down, RefuseHandshakes, SilentHandshakes
	isolated             map[string]*view     // Isolate, by the listener's address
	lagging              map[string]*follower // Lag, by the listener's address
	gate                 chan struct{}        // Freeze; Thaw closes it, and sets nil
	hook                 func(*Request) Action
	loss                 *loss
}

// loss is the fault of LoseReply.
type loss struct {
	left  int                // how many replies are still to be lost
	match func(Request) bool // the requests whose replies are lost; nil for all but pings
}

// take uses up one loss, and reports whether there was one. Called with the lock held.
func (l *loss) take() bool {
	if l.left == 0 {
		return false
	}
	l.left--
	return true
}

// Action is what the server is to do with a request instead of executing and answering it. The zero value changes nothing.
type Action struct {
	// Err answers the request with this error, without executing it. A connect request has no such answer: the server never
	// answers it.
	Err Error
	// Ignore neither executes nor answers the request. The request does not count as a sign of life.
	Ignore bool
	// Cut resets the connection without executing the request.
	Cut bool
	// NoTouch executes and answers the request, which does not count as a sign of life: so acts a follower that has not yet
	// reported it to its leader, which decides when a session expires.
	NoTouch bool
	// LoseReply executes the request, and closes the connection instead of answering.
	LoseReply bool
}

// SetHook makes the server call hook with each request before it executes the request, connect requests and pings included. With
// nil it calls none. Four-letter words are no requests. The hook runs on the goroutine of the request's connection. It may change
// the request; until it returns, the connection's later requests wait. It may call the server's methods except Close.
func (s *Server) SetHook(hook func(*Request) Action) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.hook = hook
}

// LoseReply makes the server execute the next n requests that match, and close their connection instead of answering: their
// outcome is unknown to the client. With a nil match, all requests but pings match. n = 0 ends LoseReply.
func (s *Server) LoseReply(n int, match func(Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.loss = nil
	if n > 0 {
		s.faults.loss = &loss{left: n, match: match}
	}
}

// Freeze stops the server like SIGSTOP stops a process: connections are accepted, no request is answered, no session expires.
// Time goes on: on Thaw, sessions whose time is over expire before any request is answered. The methods that read and change the
// tree still work. (For a server that is cut off while its sessions expire, see [Network.BlackHole].)
func (s *Server) Freeze() { s.freeze(false) }

// FreezeClock is Freeze, and stops the sessions' clock too, like a virtual machine that is paused: after Thaw the sessions have
// as much time left as before.
func (s *Server) FreezeClock() { s.freeze(true) }

func (s *Server) freeze(clock bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults.gate != nil {
		return
	}
	s.faults.gate = make(chan struct{})
	s.disarm()
	if clock {
		s.clock.stop()
	}
}

// Thaw ends Freeze and FreezeClock: the server executes the requests that have arrived meanwhile.
func (s *Server) Thaw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.thaw()
}

func (s *Server) thaw() {
	if s.faults.gate == nil {
		return
	}
	gate := s.faults.gate
	s.faults.gate = nil
	s.clock.resume()
	s.arm() // sessions whose time is over expire before the next request is executed
	close(gate)
}

// awaitGate waits until the server is not frozen. It returns false if the connection is closed. Called with the lock held, which
// it releases while it waits.
func (s *Server) awaitGate(c *conn) bool {
	for s.faults.gate != nil {
		gate := s.faults.gate
		s.mu.Unlock()
		select {
		case <-gate:
		case <-c.done:
		}
		s.mu.Lock()
		if s.dropped(c) {
			return false
		}
	}
	return !s.dropped(c)
}

// dropped reports whether the server has closed the connection. Called with the lock held.
func (s *Server) dropped(c *conn) bool {
	_, here := s.conns[c]
	return !here
}

// RefuseHandshakes makes the server close new connections at once, until it is switched off again. (A virtual network can refuse
// them as if nobody listened: [Network.Refuse].)
func (s *Server) RefuseHandshakes(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.refuse = on
}

// SilentHandshakes makes the server accept connections and never answer their connect request or four-letter word, until it is
// switched off again. Connections from that time stay silent.
func (s *Server) SilentHandshakes(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.silent = on
}

// Isolate makes one of the server's listeners behave like a member of an ensemble that is cut off from the others: a deposed
// leader, or a follower without a leader. Its clients still get answers to pings, reads and Sync, from the tree as it is now.
// Watches don't fire. Writes and new connect requests are neither executed nor answered. No request through that listener counts
// as a sign of life: sessions expire, and clients of other listeners see it, but the session's own connection does not.
// Four-letter words are answered from the same tree. For the other members of the ensemble, serve the Server on more listeners.
func (s *Server) Isolate(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults.isolated == nil {
		s.faults.isolated = map[string]*view{}
	}
	if s.faults.isolated[address] != nil {
		return
	}
	s.faults.isolated[address] = &view{tree: s.tree.clone(), zxid: s.zxid, stale: true, mode: s.mode(address)}
	for c := range s.conns {
		if c.listener == address {
			s.dataWatches.removeConn(c)
			s.childWatches.removeConn(c)
		}
	}
}

// Rejoin ends Isolate. It resets the listener's connections, as a member that has lost its leader does.
func (s *Server) Rejoin(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.faults.isolated, address)
	for c := range s.conns {
		if c.listener == address {
			c.drop(true)
		}
	}
}

// view returns what the connection reads. Called with the lock held.
func (c *conn) view() view {
	if stale := c.isolated(); stale != nil {
		return *stale
	}
	if f := c.srv.faults.lagging[c.listener]; f != nil {
		return f.view
	}
	return view{tree: c.srv.tree, zxid: c.srv.zxid}
}

// isolated returns the view of the connection's listener if that is isolated, else nil. Called with the lock held.
func (c *conn) isolated() *view { return c.srv.faults.isolated[c.listener] }

// release separates a session from its connection. It closes the connection, unless that is on an isolated listener, which does
// not learn what happens to the session. Called with the lock held.
func (s *Server) release(ses *session) {
	if ses.conn != nil && ses.conn.isolated() == nil {
		ses.conn.drop(false)
	}
	ses.conn = nil
}

// CutAll resets all connections. Sessions live on until they expire.
func (s *Server) CutAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cutAll()
}

func (s *Server) cutAll() {
	for c := range s.conns {
		c.drop(true)
	}
}

// CutSession resets a session's connection, and reports whether the session had one. The session lives on until it expires.
func (s *Server) CutSession(id int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ses := s.sessions[id]
	if ses == nil || ses.conn == nil {
		return false
	}
	ses.conn.drop(true)
	return true
}

// Down is a crash: all connections are reset, new ones are closed at once, and no session expires until Restart.
func (s *Server) Down() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.down = true
	s.disarm()
	s.cutAll()
}

// Restart is a crash and a start at once, or the start after Down: all connections are reset. If empty is false, the data are
// kept and sessions live on: each has the whole timeout of its creation again. If empty is true, the tree is empty, all sessions
// are gone, and zxids start again from zero: clients that have seen higher ones are refused, as by the real server. Restart ends
// Freeze; the other faults stay.
func (s *Server) Restart(empty bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restart(func() {
		if empty {
			s.tree, s.zxid = newTree(), 0
			clear(s.sessions)
			clear(s.containers)
		}
	})
}

// restart crashes the server, calls load to replace its data, and starts it. Called with the lock held.
func (s *Server) restart(load func()) {
	s.cutAll()
	s.disarm()
	s.faults.down = false
	load()
	s.startFollowers()
	if s.faults.gate != nil {
		close(s.faults.gate)
		s.faults.gate = nil
		s.clock.resume()
	}
	for _, ses := range s.sessions {
		ses.current = ses.timeout
		s.touch(ses, ses.timeout)
	}
	s.arm()
}
