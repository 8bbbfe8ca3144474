package zktest

// faults is the trouble a server is in.
type faults struct {
	down, refuse, silent bool
	isolated             map[string]*view     // by listener's address
	lagging              map[string]*follower // by listener's address
	gate                 chan struct{}        // not nil while frozen; closed by Thaw
	hook                 func(*Request) Action
	loss                 *loss
}

// loss is what LoseReply was asked for.
type loss struct {
	left  int
	match func(Request) bool
}

// take uses up one of the losses. Called with the lock held.
func (l *loss) take() bool {
	if l.left == 0 {
		return false
	}
	l.left--
	return true
}

// Action is what a hook wants done with a request; the zero value executes it as it is.
type Action struct {
	// Err answers the request with this error instead of executing it. A connect request can't be answered so: it is
	// never answered.
	Err Error
	// Ignore never answers the request and does not execute it; it does not count as a sign of life either.
	Ignore bool
	// Cut resets the connection instead of executing the request.
	Cut bool
	// NoTouch executes and answers the request without counting it as a sign of life: as by a follower that has not yet
	// told its leader, who decides when a session expires.
	NoTouch bool
	// LoseReply executes the request and closes the connection instead of answering.
	LoseReply bool
}

// SetHook makes the server call hook with every request, connect requests and pings included, before it executes it; nil
// ends that. Four-letter words are no requests. The hook runs on the goroutine of the request's connection: it may change the request,
// and while it has not returned, the connection's later requests wait. It may call the server's methods except Close.
func (s *Server) SetHook(hook func(*Request) Action) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.hook = hook
}

// LoseReply makes the server execute the next n requests that match, and close their connection instead of replying: their
// outcome is unknown to the client. With a nil match, any request but a ping matches. n = 0 ends it.
func (s *Server) LoseReply(n int, match func(Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.loss = nil
	if n > 0 {
		s.faults.loss = &loss{left: n, match: match}
	}
}

// Freeze stops the server like SIGSTOP stops a process: connections are accepted, nothing is answered, no session
// expires. Time goes on: on Thaw, sessions that are overdue by then expire before anything is answered. Direct access
// goes on working. (For a server that is cut off while its sessions expire, see [Network.BlackHole].)
func (s *Server) Freeze() { s.freeze(false) }

// FreezeClock is Freeze with the sessions' clock stopped too, like a virtual machine that is paused: after Thaw they have
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

// Thaw ends Freeze and FreezeClock: what has arrived meanwhile is executed now.
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
	s.arm() // what is overdue expires before the next request is executed
	close(gate)
}

// awaitGate waits until the server is not frozen; false means that the connection is over. Called with the lock held,
// which it lets go while it waits.
func (s *Server) awaitGate(c *conn) bool {
	for s.faults.gate != nil {
		gate := s.faults.gate
		s.mu.Unlock()
		select {
		case <-gate:
		case <-c.done:
		}
		s.mu.Lock()
		if s.over(c) {
			return false
		}
	}
	return !s.over(c)
}

func (s *Server) over(c *conn) bool {
	_, here := s.conns[c]
	return !here
}

// RefuseHandshakes makes the server close new connections at once, until it is switched off again. (A virtual network
// can refuse them as if nobody listened: [Network.Refuse].)
func (s *Server) RefuseHandshakes(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.refuse = on
}

// SilentHandshakes makes the server accept connections and never answer their connect request or four-letter word.
// Connections that met this stay silent after it is switched off.
func (s *Server) SilentHandshakes(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.silent = on
}

// Isolate makes one of the server's listeners behave like a member of an ensemble that is cut off from the others, a
// deposed leader or a follower without one. Its clients still get answers to pings, reads and Sync, from
// the tree as it is now; watches don't fire; writes are not answered and not executed, and neither are new connect
// requests. Nothing said there counts as a sign of life: sessions expire in their time, for all others to see, without
// the connection noticing. Four-letter words are answered from the same tree. Serve one Server on several listeners to have
// the others.
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

// Rejoin ends Isolate: the listener's connections are reset, as a member does that has lost its leader.
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

// isolated returns what the connection sees when its listener is isolated, else nil. Called with the lock held.
func (c *conn) isolated() *view { return c.srv.faults.isolated[c.listener] }

// release lets go of the connection that a session has: it is closed, unless it is on an isolated listener, which can't
// know. Called with the lock held.
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

// CutSession resets a session's connection, and tells whether it had one. The session lives on until it expires.
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

// Restart is a crash and a start at once, or the start after Down: all connections are reset. With the data kept,
// sessions live on, and their time begins anew in full, with the timeout of their creation. With empty set, the tree is
// empty, all sessions are gone, and zxids start again from zero: clients that have seen higher ones are turned away, as
// by the real server. Restart ends Freeze; the other faults stay.
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

// restart crashes the server, lets load replace its data, and starts it. Called with the lock held.
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
