package zktest

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"
)

// session is a ZooKeeper session.
type session struct {
	id         int64
	timeout    int64               // the timeout granted at its creation, in ms
	current    int64               // the timeout granted last, in ms; a restart sets it back to timeout
	conn       *conn               // the session's connection, or nil
	touched    time.Time           // when the last sign of life came
	expires    int64               // when the session expires, in ms of the server's clock; a multiple of the tick
	ephemerals map[string]struct{} // the paths of its ephemeral znodes
}

// SessionInfo describes a live session.
type SessionInfo struct {
	ID         int64
	Timeout    time.Duration // the timeout negotiated last
	Ephemerals []string      // the paths of its ephemeral znodes, sorted
	Watches    int           // how many paths it watches; data and child watches are counted separately
	Client     string        // the client's address, or its name on a virtual network; "" while it is not connected
	LastTouch  time.Time     // when the last sign of life came
	Expires    time.Time     // when the session expires without another sign of life
}

// sessionPassword returns the password that a client must send to reconnect to a session. It is a function of the id, so it
// survives restarts, as a real server's does.
func sessionPassword(id int64) []byte {
	var b [16]byte
	copy(b[:], "zktest")
	binary.BigEndian.PutUint64(b[8:], uint64(id))
	sum := sha256.Sum256(b[:])
	return sum[:16]
}

// touch records a sign of life of a session. Called with the lock held.
func (s *Server) touch(ses *session, timeout int64) {
	ses.touched = time.Now()
	ses.expires = ((s.clock.now()+timeout)/s.set.tick + 1) * s.set.tick
	if s.clock.armed == 0 || ses.expires < s.clock.armed {
		s.arm()
	}
}

// openSession begins a session. Called with the lock held.
func (s *Server) openSession(timeout int64) *session {
	s.zxid++
	// As in ZooKeeper, ids grow with time: no two sessions have one id, even if the data are lost in between.
	s.lastID = max(s.lastID+1, 1<<56|(time.Now().UnixMilli()&0xffffffffff)<<16)
	ses := &session{id: s.lastID, timeout: timeout, current: timeout, ephemerals: map[string]struct{}{}}
	s.sessions[ses.id] = ses
	s.stats.SessionsCreated++
	s.touch(ses, timeout)
	s.set.log.Info("session created", "session_id", fmt.Sprintf("%#x", ses.id), "timeout", time.Duration(timeout)*time.Millisecond)
	return ses
}

// endSession removes a session and its ephemeral znodes in one transaction. It closes the session's connection without an answer,
// unless that is asking, the connection of a closeSession. Called with the lock held.
func (s *Server) endSession(ses *session, asking *conn) {
	t := s.begin(ses.id, nil)
	delete(s.sessions, ses.id)
	if ses.conn != asking {
		s.release(ses)
	}
	for _, path := range slices.Sorted(maps.Keys(ses.ephemerals)) {
		if n := s.tree[path]; n != nil && n.stat.EphemeralOwner == ses.id {
			parent, _ := parentOf(path)
			t.unlink(n, s.tree[parent])
		}
	}
	s.commit(t)
}

// connect answers a connect request. Called with the lock held.
func (s *Server) connect(c *conn, r *Request) bool {
	if zxid := c.view().zxid; r.Zxid > zxid {
		s.set.log.Info("connect request refused: the client has seen a higher zxid", "client", c.client,
			"seen", r.Zxid, "zxid", zxid)
		return false
	}
	c.timeout = min(max(r.Timeout.Milliseconds(), s.set.minTimeout), s.set.maxTimeout)
	var ses *session
	if r.Session == 0 {
		ses = s.openSession(c.timeout)
		s.follow(c.listener)
	} else {
		ses = s.sessions[r.Session]
		if ses != nil {
			s.release(ses) // before the password is checked, as in ZooKeeper
		}
		if ses != nil && string(r.password) != string(sessionPassword(r.Session)) {
			ses = nil
		}
		if ses != nil {
			ses.current = c.timeout
			s.touch(ses, c.timeout)
			s.stats.SessionsReattached++
		}
	}
	e := newEncoder()
	e.int32(0)
	if ses == nil {
		e.int32(0)
		e.int64(0)
		e.bytes(make([]byte, 16))
	} else {
		c.session, ses.conn = ses, c
		e.int32(int32(c.timeout))
		e.int64(ses.id)
		e.bytes(sessionPassword(ses.id))
	}
	if r.newer {
		e.bool(false) // not read-only
	}
	c.send(e.frame())
	return ses != nil
}

// Sessions returns the live sessions, sorted by id.
func (s *Server) Sessions() []SessionInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]SessionInfo, 0, len(s.sessions))
	for _, id := range slices.Sorted(maps.Keys(s.sessions)) {
		ses := s.sessions[id]
		info := SessionInfo{
			ID: id, Timeout: time.Duration(ses.current) * time.Millisecond,
			Ephemerals: slices.Sorted(maps.Keys(ses.ephemerals)),
			LastTouch:  ses.touched, Expires: s.clock.at(ses.expires),
		}
		if ses.conn != nil {
			info.Client = ses.conn.client
			info.Watches = s.dataWatches.count(ses.conn) + s.childWatches.count(ses.conn)
		}
		list = append(list, info)
	}
	return list
}

// KillSession ends a session at once, as if it had expired: its ephemeral znodes are removed, its connection is closed.
// KillSession reports whether there was such a session.
func (s *Server) KillSession(id int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ses := s.sessions[id]
	if ses == nil {
		return false
	}
	s.endSession(ses, nil)
	s.arm()
	return true
}
