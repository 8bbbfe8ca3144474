package zktest

import "maps"

// Backup is a copy of a server's state at one moment: its znodes, its sessions and its last zxid. A Backup never changes, and may
// be restored any number of times.
type Backup struct {
	tree       tree
	zxid       int64
	sessions   []session
	containers map[string]struct{}
}

// RestoreOptions configure a server that starts from a backup. With the zero value it is a single server, and has the backup's
// sessions, as a copy of a real server's data directory has them.
type RestoreOptions struct {
	// ForgetSessions ends the sessions of the backup, and removes their ephemeral znodes, before a client can connect, as if the
	// sessions had expired in the meantime.
	ForgetSessions bool

	// Elect begins the next epoch of zxids, as an ensemble does that elects a leader. The new zxids may be higher than all that
	// clients have seen; then the server does not refuse the clients.
	Elect bool
}

// Backup returns a copy of the server's state.
func (s *Server) Backup() *Backup {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &Backup{tree: s.tree.clone(), zxid: s.zxid, containers: maps.Clone(s.containers)}
	for _, ses := range s.sessions {
		same := *ses
		same.conn, same.ephemerals = nil, maps.Clone(ses.ephemerals)
		b.sessions = append(b.sessions, same)
	}
	return b
}

// Restore is a crash and a start from a backup, or the start after Down: all connections are reset. What was written after the
// backup is lost. Sessions that began after the backup are gone. Sessions of the backup live again for at least their timeout,
// even if they have ended since. Restore ends Freeze, as Restart does; the other faults stay.
func (s *Server) Restore(b *Backup, opts RestoreOptions) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restart(func() {
		s.tree, s.zxid, s.containers = b.tree.clone(), b.zxid, maps.Clone(b.containers)
		if opts.Elect {
			s.zxid = (b.zxid>>32 + 1) << 32
		}
		clear(s.sessions)
		for _, ses := range b.sessions {
			ses.ephemerals = maps.Clone(ses.ephemerals)
			s.sessions[ses.id] = &ses
		}
		if opts.ForgetSessions {
			for _, ses := range maps.Clone(s.sessions) {
				s.endSession(ses, nil)
			}
		}
	})
}
