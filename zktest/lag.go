package zktest

// follower is a listener that lags: the tree as the listener knows it, and the transactions that it has not seen yet.
type follower struct {
	view
	missing []transaction
}

// transaction is the events of one committed transaction.
type transaction struct {
	zxid   int64
	events []event
}

// Lag makes one of the server's listeners behave like a follower that is behind its leader, until CatchUp. Clients that are
// connected through it read the tree as it is now, and their watches do not fire, until the listener has caught up. It
// catches up whenever a client that is connected through it writes, calls Sync or begins a session, because a follower sees
// all transactions before the one that it answers. Then it lags behind that state.
//
// No session reads older data than it read before: a client that comes back and has seen a higher zxid than the listener is
// turned away, as by a real server. Signs of life count as on other listeners, and the end of a session closes its
// connection at once. A listener that is isolated and lags behaves as if it were isolated only.
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

// CatchUp ends Lag: watches fire for what has changed meanwhile.
func (s *Server) CatchUp(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follow(address)
	delete(s.faults.lagging, address)
}

// follow has a listener that lags see everything. Called with the lock held.
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

// startFollowers has all listeners that lag begin with what the server holds, as followers do that have been started.
// Called with the lock held.
func (s *Server) startFollowers() {
	for _, f := range s.faults.lagging {
		f.view, f.missing = view{tree: s.tree.clone(), zxid: s.zxid}, nil
	}
}

// fire sends the events of a committed transaction to the clients that watch. Listeners that lag do so later. Called with
// the lock held.
func (s *Server) fire(zxid int64, events []event) {
	t := transaction{zxid: zxid, events: events}
	for _, f := range s.faults.lagging {
		f.missing = append(f.missing, t)
	}
	s.fireAt(t, func(c *conn) bool { return s.faults.lagging[c.listener] == nil })
}
