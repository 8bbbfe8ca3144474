package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/wait"
)

// settleTime is the time boundary of partitioners in schedules.
const settleTime = 300 * time.Millisecond

// items are what the members of a set partitioner divide.
func items() []string {
	var list []string
	for i := range 11 {
		list = append(list, fmt.Sprintf("item-%02d", i))
	}
	return list
}

// divider is a member of those who divide the items.
type divider struct {
	name   string
	linked *linked                 // of Go
	life   *life                   // of Python
	leave  func()                  // as one that finishes
	share  func() ([]string, bool) // what it has, if it has acquired
	lost   func() bool             // a Python that was starved: it may stand in everybody's way
	kill   func()                  // of Python
}

// partition has members divide items, while they join and leave, are killed and lose their links. No item is ever two members',
// and when all is quiet each is one's.
func (s *schedule) partition() {
	rng := rand.New(rand.NewPCG(s.seed, 1))
	members := make([]*divider, len(s.members))
	join := func(i int) {
		name, begin := s.members[i].Name, s.divideInGo
		if s.members[i].python {
			// Sometimes beside the ghost of the same name.
			name, begin = fmt.Sprintf("%s %d", name, rng.IntN(2)), s.divideInPython
		}
		var err error
		if members[i], err = begin(name); err != nil {
			s.bad("%s: %v", name, err)
		}
	}
	for i := range members {
		join(i)
		wait.Pass(s, time.Duration(rng.IntN(200))*time.Millisecond)
	}
	for step := range 2 + rng.IntN(2) {
		i := rng.IntN(len(members))
		if members[i] == nil {
			return
		}
		wait.Pass(s, time.Duration(rng.IntN(1500))*time.Millisecond)
		if again := s.disturb(s.members[i], members[i], rng, step == 0); again {
			join(i)
		}
	}
	if slices.Contains(members, nil) {
		return
	}
	shares := make(map[string][]string)
	s.await("each item is one member's", time.Minute, func() (bool, error) {
		for i, m := range members {
			if m.lost != nil && m.lost() {
				s.add("lost by itself", 1)
				m.kill()
				join(i)
			}
		}
		return s.divided(members, shares)
	})
	s.tell("divided: %v", shares)
	for _, m := range members {
		m.leave()
	}
}

// disturb does something to a member, which is deadly if that is wanted. It reports whether another has to join in its place.
func (s *schedule) disturb(m *member, d *divider, rng *rand.Rand, death bool) (again bool) {
	f := s.drawFault(rng, m, "")
	for f.what == replyLost || death && !deadly(f.what) { // the moment of a lost reply would be a matter of chance
		f = s.drawFault(rng, m, "")
	}
	switch {
	case !death && rng.IntN(3) == 0:
		s.happens(m, fault{what: "left"})
		d.leave()
		return true
	case d.linked != nil:
		f.stage, f.op, f.after = "ask", 1, 0
		m.faults = []fault{f}
		s.fault(m, d.linked, f.stage, f.op)
		d.linked.faults.Wait()
		return false
	}
	s.happens(m, f)
	if f.what == killed {
		d.kill()
		return true
	}
	if f.what == stoppedLong {
		d.life.sick.Store(true)
	}
	if err := d.life.send(map[string]any{"id": d.life.id, "signal": "SIGSTOP"}); err != nil {
		s.bad("%s: %v", d.name, err)
	}
	wait.Pass(s, f.lasts)
	if err := d.life.send(map[string]any{"id": d.life.id, "signal": "SIGCONT"}); err != nil {
		s.bad("%s: %v", d.name, err)
	}
	if f.what == stoppedLong {
		wait.Pass(s, 500*time.Millisecond)
		d.kill()
		return true
	}
	return false
}

// divided reports whether each item is one member's, and the members are these alone.
func (s *schedule) divided(members []*divider, shares map[string][]string) (bool, error) {
	inc, err := s.s.Incarnation(s.Context())
	if err != nil {
		return false, err
	}
	all, _, err := inc.Children(s.Context(), session.Join(s.path, "party"))
	if err != nil || len(all) != len(members) {
		return false, err
	}
	var owned []string
	clear(shares)
	for _, m := range members {
		share, ok := m.share()
		if !ok || len(share) < len(items())/len(members) {
			return false, nil
		}
		shares[m.name] = share
		owned = append(owned, share...)
	}
	slices.Sort(owned)
	return slices.Equal(owned, items()), nil
}

func (s *schedule) divideInGo(name string) (*divider, error) {
	l, err := s.linked(s.timeout)
	if err != nil {
		return nil, err
	}
	p, err := partitioner.New(l.Session, s.path, items(), partitioner.Options{
		Identifier: name, TimeBoundary: settleTime, MaxReactionTime: settleTime, Order: partitioner.OrderText,
	})
	if err != nil {
		return nil, errors.Join(err, l.end())
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	done := make(chan error, 1)
	go func() {
		done <- p.Run(ctx, func(ctx context.Context, items []string) error {
			inc, began := l.Current(), s.now()
			s.tell("%s has %v", name, items)
			for inc != nil {
				at := s.now()
				if ctx.Err() != nil || !inc.Trusted() {
					break
				}
				for _, item := range items {
					s.claims.add(claim{who: name, what: item, session: inc.SessionID(), began: began, last: at})
				}
				wait.Pass(s, 30*time.Millisecond)
			}
			<-ctx.Done()
			s.tell("%s: %v", name, context.Cause(ctx))
			return ctx.Err()
		})
	}()
	return &divider{
		name: name, linked: l,
		share: func() ([]string, bool) { return p.Items(), p.Acquired() },
		leave: func() {
			cancel()
			if err := errors.Join(<-done, l.end()); err != nil {
				s.bad("%s: %v", name, err)
			}
		},
	}, nil
}

func (s *schedule) divideInPython(name string) (*divider, error) {
	l, m := s.life(), &member{Name: name}
	if err := s.begin(l, m, []op{{N: 1, Make: "SetPartitioner", Seconds: settleTime.Seconds(), Pause: 0.05}}); err != nil {
		return nil, err
	}
	d := &divider{name: name, life: l}
	var mu sync.Mutex
	var latest event
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			e, err := l.hear(context.WithoutCancel(s.Context()), silence)
			if err != nil {
				s.bad("%s: %v", name, err)
				return
			}
			s.heard(m, l, e)
			mu.Lock()
			if e.Say == "share" {
				latest = e
			}
			mu.Unlock()
			if e.Say == "end" || e.Say == "SIGKILL" {
				return
			}
		}
	}()
	d.share = func() ([]string, bool) {
		mu.Lock()
		defer mu.Unlock()
		return latest.Items, latest.Text == "ACQUIRED"
	}
	d.lost = l.sick.Load
	d.kill = func() {
		at := s.now()
		l.sick.Store(true)
		err := l.send(map[string]any{"id": l.id, "signal": "SIGKILL"})
		<-over
		s.claims.kill(name, at)
		l.forget()
		if err != nil {
			s.bad("%s: %v", name, err)
		}
	}
	d.leave = func() {
		err := l.send(map[string]any{"id": l.id, "signal": "SIGTERM"})
		<-over
		if _, gone := l.signal("SIGKILL"); err != nil || gone != nil {
			s.bad("%s: %v", name, errors.Join(err, gone))
		}
		l.forget()
	}
	return d, nil
}
