package sim_test

import (
	"context"
	"time"
)

// join starts a member that is not there.
func join(w *world, s step) (func(), bool) {
	slot, ok := w.free(s)
	if ok {
		w.wanted[slot] = true
		w.slots[slot] = w.start(slot, false)
	}
	return nil, ok
}

// free is the slot that a step has join.
func (w *world) free(s step) (int, bool) {
	for i := range w.slots {
		slot := (s.Member + i) % len(w.slots)
		if w.slots[slot] == nil && !w.wanted[slot] {
			return slot, true
		}
	}
	return 0, false
}

// spare says whether one more member may go away for good.
func (w *world) spare() bool {
	n := 0
	for _, wanted := range w.wanted {
		if wanted {
			n++
		}
	}
	return n > 3
}

// leave makes a member leave for good; or leave and come back, when there are few.
func leave(p *process, _ step) bool {
	if p.w.spare() {
		p.w.wanted[p.slot] = false
	}
	p.leave()
	return true
}

// crash kills a process; nobody tells the servers when it is silent. It is started again when there are few.
func crash(silent bool) deed {
	return onMember(func(p *process, _ step) {
		w := p.w
		w.wanted[p.slot] = !w.spare()
		w.slots[p.slot] = nil
		p.kill(silent)
		if w.wanted[p.slot] {
			w.slots[p.slot] = w.start(p.slot, false)
		}
	})
}

// restartMember kills a process and starts it again within the session timeout.
func restartMember(p *process, s step) func() {
	w, slot := p.w, p.slot
	w.slots[slot], w.wanted[slot] = nil, false
	p.kill(s.N%2 == 0)
	return func() {
		if w.slots[slot] == nil {
			w.wanted[slot] = true
			w.slots[slot] = w.start(slot, false)
		}
	}
}

// freezeMember stops a process like SIGSTOP.
func freezeMember(p *process, s step) func() {
	p.stop(s.N%2 == 0)
	began := time.Now()
	return func() {
		p.heal(began)
		p.resume()
	}
}

func slowHandler(p *process, s step) func() {
	p.setSlow(min(s.D, rebalanceTimeout*2/3))
	return func() { p.setSlow(0) }
}

// stuckHandler has the handlers of a member not return; then its share changes.
func stuckHandler(p *process, s step) func() {
	p.stick()
	if other := p.w.choose(s.Member + 1); other != nil && other != p {
		p.w.delete(groupPath + "/members/" + other.name)
	}
	return p.unstick
}

// stuckAtJoin has the handlers of a member not return, and another member join.
func stuckAtJoin(w *world, s step) (func(), bool) {
	if _, ok := w.free(s); !ok {
		return nil, false
	}
	return troubleWith(handlersOf, func(p *process, s step) func() {
		p.stick()
		join(w, s)
		return p.unstick
	})(w, s)
}

// double starts a second process with the name of one that lives.
func double(p *process, _ step) func() {
	d := p.w.start(p.slot, true)
	p.w.doubles = append(p.w.doubles, d)
	return d.leave
}

// storm lets all members leave and come back at once, but one.
func storm(w *world, s step) (func(), bool) {
	first := w.choose(s.Member)
	for slot := range w.slots {
		if p := w.slots[slot]; p == nil && !w.wanted[slot] {
			w.wanted[slot] = true
			w.slots[slot] = w.start(slot, false)
		} else if p != nil && p != first && !p.isLeaving() && s.N%2 == 0 {
			p.leave()
		}
	}
	return nil, true
}

func rebalance(p *process, _ step) bool {
	if p.alloc == nil {
		return false
	}
	p.w.later(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err := p.alloc.Rebalance(ctx)
		p.w.mon.Note("%s: rebalance asked for: %v", p.id, err)
	})
	return true
}

// clockJumps sets the wall clock of a member, by up to an hour.
func clockJumps(p *process, s step) {
	p.clock.set(1, 1, time.Duration(s.N%7200-3600)*time.Second)
}

// onClock has a member's clocks run at another rate.
func onClock(mono, wall float64) deed {
	return troubleWith(clockOf, func(p *process, _ step) func() {
		p.clock.set(mono, wall, 0)
		return func() { p.clock.set(1, 1, 0) }
	})
}

// suspended is a machine that sleeps: all of a process stands still, and its monotonic clock does.
func suspended(p *process, s step) func() {
	thaw := freezeMember(p, s)
	p.clock.set(0, 1, 0)
	return func() {
		p.clock.set(1, 1, 0)
		thaw()
	}
}
