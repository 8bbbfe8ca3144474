package recipes_test

import (
	"slices"
	"time"

	"github.com/kielgo/kiel/test/proxy"
	"github.com/kielgo/kiel/test/wait"
)

// fault does to a Go contender what is planned for this stage of its operation. It does not wait for the end of it.
func (s *schedule) fault(m *member, l *linked, stage string, n int) {
	i := slices.IndexFunc(m.faults, func(f fault) bool { return f.stage == stage && f.op == n })
	if i < 0 {
		return
	}
	f := m.faults[i]
	m.faults = slices.Delete(slices.Clone(m.faults), i, i+1)
	l.faults.Go(func() {
		wait.Pass(s, f.after)
		s.happens(m, f)
		switch f.what {
		case cut:
			l.links.Cut()
			return
		case sessionEnded:
			s.endSession(m, l)
			return
		case refused:
			l.links.Refuse()
		case silent, silentLong:
			l.links.BlackHole(proxy.Direction(1 + f.lasts.Milliseconds()%3))
		case replyLost:
			lost := l.links.LoseReply(func(r proxy.Request) bool {
				return r.Op == proxy.OpCreate || r.Op == proxy.OpDelete || r.Op == proxy.OpMulti && r.First != proxy.OpCheck
			})
			select {
			case <-lost:
			case <-time.After(f.lasts):
			}
		}
		wait.Pass(s, f.lasts)
		l.links.Heal()
		s.tell("%s: healed", m.Name)
	})
}

// endSession ends a contender's session as its operator would. What it holds is lost at once, and it can't know.
func (s *schedule) endSession(m *member, l *linked) {
	if _, err := l.Incarnation(s.Context()); err != nil { // it may have just begun
		s.bad("%s: %v", m.Name, err)
		return
	}
	l.links.Refuse() // or the client could come between
	defer l.links.Heal()
	at, ses := s.now(), l.links[0].Session()
	s.claims.end(ses.ID, at)
	if err := ses.Close(s.Context(), s.zk); err != nil {
		s.bad("%s: %v", m.Name, err)
	}
}

// happens takes note of a fault.
func (s *schedule) happens(m *member, f fault) {
	s.add(f.what, 1)
	s.tell("%s: %v", m.Name, f)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.died = s.died || deadly(f.what)
}

// python is a Python contender: one process after the other, when they are killed.
func (s *schedule) python(m *member) {
	for ops := m.ops; len(ops) > 0; {
		var err error
		if ops, err = s.live(m, ops); err != nil {
			s.bad("%s: %v", m.Name, err)
			return
		}
	}
}

// begin has a process begin.
func (s *schedule) begin(l *life, m *member, ops []op) error {
	return l.send(map[string]any{"id": l.id, "plan": map[string]any{
		"path": s.path, "name": m.Name, "timeout": s.timeout.Seconds(), "ops": ops, "items": items(),
	}})
}

// live is the life of one process. It returns what the next has to do.
func (s *schedule) live(m *member, ops []op) (left []op, err error) {
	l := s.life()
	defer l.forget()
	if err := s.begin(l, m, ops); err != nil {
		return nil, err
	}
	kill := func() error {
		at := s.now()
		said, err := l.signal("SIGKILL")
		for _, e := range said {
			s.heard(m, l, e)
		}
		s.claims.kill(m.Name, at)
		return err
	}
	reap := func() error { // what has ended; a lease that it has obtained goes on
		_, err := l.signal("SIGKILL")
		return err
	}
	for {
		e, err := l.hear(s.Context(), silence)
		if err != nil {
			s.tell("%s: %v", m.Name, err)
			_ = kill() // it is stuck, or the test is over
			return nil, err
		}
		over := s.heard(m, l, e)
		if e.Say == "ask" {
			for ops[0].N < e.Op {
				ops = ops[1:]
			}
		}
		i := slices.IndexFunc(m.faults, func(f fault) bool { return f.stage == e.Say && f.op == e.Op })
		switch {
		case over:
			return nil, reap()
		case e.Say == "lost":
			// Not by us: it was starved. What kazoo leaves behind may be in everybody's way from now on.
			s.add("lost by itself", 1)
			return ops, kill()
		case i < 0:
			continue
		}
		f := m.faults[i]
		m.faults = slices.Delete(slices.Clone(m.faults), i, i+1)
		wait.Pass(s, f.after)
		s.happens(m, f)
		if f.what == killed {
			return ops, kill()
		}
		if f.what == stoppedLong {
			l.sick.Store(true)
		}
		said, err := l.signal("SIGSTOP")
		if err != nil {
			return nil, err
		}
		wait.Pass(s, f.lasts)
		more, err := l.signal("SIGCONT")
		if err != nil {
			return nil, err
		}
		for _, e := range append(said, more...) {
			over = s.heard(m, l, e) || over
		}
		if over { // it was at its end when it was stopped
			return nil, reap()
		}
		if l.sick.Load() {
			wait.Pass(s, 500*time.Millisecond) // in which it goes on as if nothing had happened
			return ops, kill()
		}
	}
}

// heard takes note of what a Python contender says, and reports whether that was the last.
func (s *schedule) heard(m *member, l *life, e event) (over bool) {
	ours := func(at time.Duration) time.Duration { return at - s.ahead }
	switch e.Say {
	case "held":
		began, last := ours(e.Began)+s.unsure, ours(e.Until)-s.unsure
		s.claims.add(claim{who: m.Name, what: e.What, shared: e.Shared, began: began, last: last})
		return false
	case "got":
		s.holds(m, "python", e.Text)
	case "lost":
		l.sick.Store(true)
	case "put":
		s.mu.Lock()
		s.put[e.Text] = true
		s.mu.Unlock()
	case "consumed":
		if !l.sick.Load() {
			s.consumed(e.What, ours(e.At)+s.unsure)
		}
	case "failed":
		if !l.sick.Load() {
			s.bad("%s: %s", m.Name, e.Text)
		}
	}
	s.tell("%s, operation %d: %s %s %s %v", m.Name, e.Op, e.Say, e.What, e.Text, e.Items)
	return e.Say == "end"
}
