package zktest

// follower is the state of a listener that lags.
type follower struct {
	view                  // the tree as the listener has it
	missing []transaction // the transactions that the listener has not seen yet
}

// transaction has the events of one committed transaction.
type transaction struct {
	zxid   int64
	events []event
}

// Lag makes one of the server's listeners behave like a follower that is behind its leader, until CatchUp. The listener's clients
// read the tree as it is now, and their watches do not fire, until the listener catches up. It catches up whenever one of its
// clients writes, calls Sync or begins a session, because a follower sees all transactions before the one that it answers. After
// that the listener lags behind the new state.
//
// No session reads older data than it has read before: a client that reconnects and has seen a higher zxid than the listener is
// refused, as by a real server. Requests count as signs of life as on other listeners, and the end of a session closes its
// connection at once. A listener that is isolated and lags behaves as one that is isolated.
func (s *Server) Lag(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults.lagging == nil {
		s.faults.lagging = map[string]*follower{}
	}
	if s.faults.lagging[address] == nil {
		s.faults.lagging[address] = &follower{view: view{tree: s.tree.clone(), zxid: s.zxid}}
	}
}

// CatchUp ends Lag: watches fire for the changes meanwhile.
func (s *Server) CatchUp(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follow(address)
	delete(s.faults.lagging, address)
}

// follow makes a listener that lags catch up. Called with the lock held.
func (s *Server) follow(address string) {
	f := s.faults.lagging[address]
	if f == nil {
		return
	}
	missing := f.missing
	f.view, f.missing = view{tree: s.tree.clone(), zxid: s.zxid}, nil
	for _, t := range missing {
		s.fireAt(t, func(c *conn) bool { return c.listener == address })
	}
}

// startFollowers makes all listeners that lag begin with the server's present tree, as followers do after a start. Called with
// the lock held.
func (s *Server) startFollowers() {
	for _, f := range s.faults.lagging {
		f.view, f.missing = view{tree: s.tree.clone(), zxid: s.zxid}, nil
	}
}

// fire sends the events of a committed transaction to the clients that watch. The clients of listeners that lag get them later.
// Called with the lock held.
func (s *Server) fire(zxid int64, events []event) {
	t := transaction{zxid: zxid, events: events}
	for _, f := range s.faults.lagging {
		f.missing = append(f.missing, t)
	}
	s.fireAt(t, func(c *conn) bool { return s.faults.lagging[c.listener] == nil })
}
