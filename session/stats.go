package session

import "time"

// Stats is the state of a Session at one moment, and its counters. There is a counter for each way in which trust, a connection
// or a client ends, because they need different acts: an expiration is a ZooKeeper session that was too slow or cut off, a
// replaced client points to servers that have lost their data, and an abandoned one is a leak.
type Stats struct {
	// State is "connecting" (no trusted incarnation yet in this ZooKeeper session), "connected", "suspended" (no connection, but
	// still trusted), "lost" (trust has ended) or "closed".
	State string
	// Incarnation is the number of the newest incarnation, 0 before the first.
	Incarnation uint64
	// SessionID is the id of the ZooKeeper session, 0 when there is none.
	SessionID int64
	// Expirations counts ZooKeeper sessions that the servers declared expired.
	Expirations uint64
	// Reconnects counts connections after the first of their ZooKeeper session.
	Reconnects uint64
	// Replaced counts clients that were replaced because they could not reconnect: the servers had lost their data, or the client
	// hung. A loss of data shows in the next ZooKeeper session: the zxid of its first answer is smaller than the last one of the
	// session before. If the servers have written as much again by then, the loss is not noticed, and counts as an expiration
	// only.
	Replaced uint64
	// TrustLosses counts incarnations that ended because no proof came in time.
	TrustLosses uint64
	// TimeoutChanges counts connect replies that granted another timeout than the reply before.
	TimeoutChanges uint64
	// BadFrames counts connections dropped because the server sent a frame that no ZooKeeper server sends.
	BadFrames uint64
	// Abandoned counts go-zookeeper clients that did not end when they were closed.
	Abandoned uint64
	// Timeout is the negotiated session timeout; before the first connection, the one to ask for.
	Timeout time.Duration
	// LastProof is when the newest answered proof of life was sent; before the first, when the newest answered connect request
	// was written.
	LastProof time.Time
	// TrustEnd is until when the newest incarnation may be trusted, or when trust in it ended.
	TrustEnd time.Time
	// TrustLeft is how long the session will be trusted unless another proof of life is answered; 0 when it is not trusted.
	TrustLeft time.Duration
	// EphemeralBytes is how many bytes of the budget the ephemeral znodes of the ZooKeeper session take, including those that may
	// exist.
	EphemeralBytes int
	// EphemeralBudget is Options.EphemeralBudget, with its default.
	EphemeralBudget int
}

// Stats returns the state and the counters of the session. It never blocks.
func (s *Session) Stats() Stats {
	st := s.state.Load()
	stats := Stats{
		State:          "connecting",
		Expirations:    s.expirations.Load(),
		Reconnects:     s.reconnects.Load(),
		Replaced:       s.replaced.Load(),
		TrustLosses:    s.trustLosses.Load(),
		TimeoutChanges: s.timeoutChanges.Load(),
		BadFrames:      s.badFrames.Load(),
		Abandoned:      s.abandoned.Load(),
		Timeout:        s.Timeout(),

		EphemeralBudget: s.opts.EphemeralBudget,
	}
	if st.inc != nil && st.inc.Trusted() {
		stats.TrustLeft = max(st.inc.window.Load().end.until(s.now()), 0)
	}
	if st.last != nil {
		stats.Incarnation = st.last.number
		stats.TrustEnd = st.last.TrustEnd()
	}
	up := false
	c := s.client.Load()
	if c != nil {
		stats.SessionID = c.id.Load()
		stats.EphemeralBytes = c.ephemerals.bytes()
		c.mu.Lock()
		newest, proven := c.trust.newest()
		up = c.isUp
		c.mu.Unlock()
		if proven {
			stats.LastProof = s.now.timeOf(newest)
		}
	}
	switch {
	case st.final != nil:
		stats.State = "closed"
	case st.inc != nil && st.inc.Trusted() && up:
		stats.State = "connected"
	case st.inc != nil && st.inc.Trusted():
		stats.State = "suspended"
	case st.last != nil && st.last.c == c:
		stats.State = "lost"
	}
	return stats
}
