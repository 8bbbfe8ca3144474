package session

import "time"

// Stats is what a Session tells about itself.
type Stats struct {
	// State is "connecting" (no trusted incarnation yet in this ZooKeeper session), "connected", "suspended" (no
	// connection, but still trusted), "lost" (trust has ended) or "closed".
	State string
	// Incarnation is the number of the newest incarnation, 0 before the first.
	Incarnation uint64
	// SessionID is the ZooKeeper session's id, 0 when there is none.
	SessionID int64
	// Expirations counts ZooKeeper sessions that the servers declared expired.
	Expirations uint64
	// Reconnects counts connections after the first of their ZooKeeper session.
	Reconnects uint64
	// Replaced counts clients given up because they could not come back: the servers had lost their data, or the client hung.
	// That data was lost shows in the next ZooKeeper session, whose first answer is older than what was seen before; servers
	// that have by then written as much again are taken for servers that ended the session.
	Replaced uint64
	// TrustLosses counts incarnations that ended because no proof came in time.
	TrustLosses uint64
	// TimeoutChanges counts connect replies that granted another timeout than the one before.
	TimeoutChanges uint64
	// BadFrames counts connections dropped because the server sent what no server sends.
	BadFrames uint64
	// Abandoned counts clients that did not end when closed.
	Abandoned uint64
	// Timeout is the negotiated session timeout, or the asked one before the first connection.
	Timeout time.Duration
	// LastProof is when the newest answered proof of life was sent.
	LastProof time.Time
	// TrustEnd is until when the newest incarnation may be trusted, or when it ended.
	TrustEnd time.Time
}

// Stats returns what the session tells about itself; it never blocks.
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
	}
	if st.last != nil {
		stats.Incarnation = st.last.number
		stats.TrustEnd = st.last.TrustEnd()
	}
	up := false
	c := s.client.Load()
	if c != nil {
		stats.SessionID = c.id.Load()
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
