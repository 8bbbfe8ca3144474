package zktest

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// sweepInterval is how often empty containers are removed, in ms.
const sweepInterval = 60_000

// clock counts the milliseconds by which sessions expire. It can stand still.
type clock struct {
	origin  time.Time
	stopped time.Time // set while it stands still
	timer   *time.Timer
	armed   int64 // when the timer fires; 0 = not armed
	sweep   int64 // when empty containers are removed; 0 = not planned
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

// at is the moment at which the clock shows ms.
func (k *clock) at(ms int64) time.Time { return k.origin.Add(time.Duration(ms) * time.Millisecond) }

// standing tells whether nothing falls due now: a server that is down or frozen expires nothing.
func (s *Server) standing() bool { return s.closed || s.faults.down || s.faults.gate != nil }

// arm sets the timer for what falls due next; it is not set while there is nothing, so that an idle server sleeps. Called
// with the lock held.
func (s *Server) arm() {
	if s.standing() {
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

// catchUp does what has fallen due, when the timer is late by a moment. Called with the lock held.
func (s *Server) catchUp() {
	if s.clock.armed != 0 && s.clock.armed <= s.clock.now() {
		s.due()
		s.arm()
	}
}

// due does what has fallen due: it ends the sessions whose time is over and removes empty containers. Called with the
// lock held.
func (s *Server) due() {
	if s.standing() {
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
