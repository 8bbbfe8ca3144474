package zktest

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// sweepInterval is how often empty containers are removed, in ms.
const sweepInterval = 60_000

// clock counts the milliseconds by which sessions expire. It can be stopped.
type clock struct {
	origin  time.Time // when the clock showed 0; later by each stop
	stopped time.Time // when the clock was stopped; zero while it runs
	timer   *time.Timer
	armed   int64 // when the timer fires, in ms of this clock; 0 if it is not armed
	sweep   int64 // when empty containers are removed next; 0 if that is not planned
}

func (k *clock) start() {
	if k.origin.IsZero() {
		k.origin = time.Now()
	}
}

func (k *clock) now() int64 {
	if !k.stopped.IsZero() {
		return k.stopped.Sub(k.origin).Milliseconds()
	}
	return time.Since(k.origin).Milliseconds()
}

func (k *clock) stop() {
	if k.stopped.IsZero() {
		k.stopped = time.Now()
	}
}

func (k *clock) resume() {
	if !k.stopped.IsZero() {
		k.origin = k.origin.Add(time.Since(k.stopped))
		k.stopped = time.Time{}
	}
}

// at returns when the clock shows ms.
func (k *clock) at(ms int64) time.Time { return k.origin.Add(time.Duration(ms) * time.Millisecond) }

// suspended reports whether nothing expires now: the server is closed, down or frozen.
func (s *Server) suspended() bool { return s.closed || s.faults.down || s.faults.gate != nil }

// arm sets the timer for the next expiry of a session or removal of containers. Without one the timer is not set, so an idle
// server sleeps. Called with the lock held.
func (s *Server) arm() {
	if s.suspended() {
		return
	}
	next := int64(0)
	for _, ses := range s.sessions {
		if next == 0 || ses.expires < next {
			next = ses.expires
		}
	}
	if len(s.containers) > 0 {
		if s.clock.sweep == 0 {
			s.clock.sweep = (s.clock.now()/sweepInterval + 1) * sweepInterval
		}
		if next == 0 || s.clock.sweep < next {
			next = s.clock.sweep
		}
	}
	if next == s.clock.armed {
		return
	}
	s.disarm()
	if next == 0 {
		return
	}
	s.clock.armed = next
	s.wg.Add(1)
	s.clock.timer = time.AfterFunc(time.Until(s.clock.at(next)), func() {
		defer s.wg.Done()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.clock.armed == next {
			s.clock.armed, s.clock.timer = 0, nil
			s.due()
			s.arm()
		}
	})
}

// disarm stops the timer. Called with the lock held.
func (s *Server) disarm() {
	if s.clock.timer != nil && s.clock.timer.Stop() {
		s.wg.Done()
	}
	s.clock.timer, s.clock.armed = nil, 0
}

// catchUp calls due if the timer is late by a moment. Called with the lock held.
func (s *Server) catchUp() {
	if s.clock.armed != 0 && s.clock.armed <= s.clock.now() {
		s.due()
		s.arm()
	}
}

// due ends the sessions that have expired, and removes empty containers if it is time. Called with the lock held.
func (s *Server) due() {
	if s.suspended() {
		return
	}
	now := s.clock.now()
	for _, id := range slices.Sorted(maps.Keys(s.sessions)) {
		if ses := s.sessions[id]; ses.expires <= now {
			s.stats.SessionsExpired++
			s.set.log.Info("session expired", "session_id", fmt.Sprintf("%#x", id))
			s.endSession(ses, nil)
		}
	}
	if s.clock.sweep == 0 || s.clock.sweep > now {
		return
	}
	s.clock.sweep = 0
	for _, path := range slices.Sorted(maps.Keys(s.containers)) {
		if n := s.tree[path]; n.creates > 0 && len(n.children) == 0 {
			t := s.begin(0, nil)
			parent, _ := parentOf(path)
			t.unlink(n, s.tree[parent])
			s.commit(t)
		}
	}
}
