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
func leave(w *world, s step) (func(), bool) {
	p := w.choose(s.Member)
	if p == nil {
		return nil, false
	}
	if w.spare() {
		w.wanted[p.slot] = false
	}
	p.leave()
	return nil, true
}

// crash kills a process; nobody tells the servers when it is silent. It is started again when there are few.
func crash(silent bool) func(w *world, s step) (func(), bool) {
	return func(w *world, s step) (func(), bool) {
		p := w.choose(s.Member)
		if p == nil {
			return nil, false
		}
		w.wanted[p.slot] = !w.spare()
		w.slots[p.slot] = nil
		p.kill(silent)
		if w.wanted[p.slot] {
			w.slots[p.slot] = w.start(p.slot, false)
		}
		return nil, true
	}
}

// restartMember kills a process and starts it again within the session timeout.
func restartMember(w *world, s step) (func(), bool) {
	p := w.choose(s.Member)
	if p == nil {
		return nil, false
	}
	free, ok := w.hold("slot " + p.name)
	if !ok {
		return nil, false
	}
	slot := p.slot
	w.slots[slot], w.wanted[slot] = nil, false
	p.kill(s.N%2 == 0)
	return func() {
		free()
		if w.slots[slot] == nil {
			w.wanted[slot] = true
			w.slots[slot] = w.start(slot, false)
		}
	}, true
}

// freezeMember stops a process like SIGSTOP.
func freezeMember(w *world, s step) (func(), bool) {
	p := w.choose(s.Member)
	if p == nil {
		return nil, false
	}
	free, ok := w.hold("link of " + p.id)
	if !ok {
		return nil, false
	}
	p.stop(s.N%2 == 0)
	began := time.Now()
	return func() {
		free()
		p.heal(began)
		p.resume()
	}, true
}

func slowHandler(w *world, s step) (func(), bool) {
	p := w.choose(s.Member)
	if p == nil {
		return nil, false
	}
	free, ok := w.hold("handlers of " + p.id)
	if !ok {
		return nil, false
	}
	p.setSlow(min(s.D, rebalanceTimeout*2/3))
	return func() {
		free()
		p.setSlow(0)
	}, true
}

// stuckHandler has the handlers of a member not return; then its share changes.
func stuckHandler(w *world, s step) (func(), bool) {
	p := w.choose(s.Member)
	if p == nil {
		return nil, false
	}
	free, ok := w.hold("handlers of " + p.id)
	if !ok {
		return nil, false
	}
	p.stick()
	if other := w.choose(s.Member + 1); other != nil && other != p {
		w.delete(groupPath + "/members/" + other.name)
	}
	return func() {
		free()
		p.unstick()
	}, true
}

// stuckAtJoin has the handlers of a member not return, and another member join.
func stuckAtJoin(w *world, s step) (func(), bool) {
	p := w.choose(s.Member)
	if _, ok := w.free(s); !ok || p == nil {
		return nil, false
	}
	free, ok := w.hold("handlers of " + p.id)
	if !ok {
		return nil, false
	}
	p.stick()
	join(w, s)
	return func() {
		free()
		p.unstick()
	}, true
}

// double starts a second process with the name of one that lives.
func double(w *world, s step) (func(), bool) {
	p := w.choose(s.Member)
	if p == nil {
		return nil, false
	}
	free, ok := w.hold("slot " + p.name)
	if !ok {
		return nil, false
	}
	d := w.start(p.slot, true)
	w.doubles = append(w.doubles, d)
	return func() {
		free()
		d.leave()
	}, true
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

func rebalance(w *world, s step) (func(), bool) {
	p := w.choose(s.Member)
	if p == nil || p.alloc == nil {
		return nil, false
	}
	w.later(func() {
		ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second)
		defer cancel()
		err := p.alloc.Rebalance(ctx)
		w.mon.Note("%s: rebalance asked for: %v", p.id, err)
	})
	return nil, true
}

// clockJumps sets the wall clock of a member, by up to an hour.
func clockJumps(p *process, s step) {
	p.clock.set(1, 1, time.Duration(s.N%7200-3600)*time.Second)
}

// onClock has a member's clocks run at another rate.
func onClock(mono, wall float64) func(*world, step) (func(), bool) {
	return func(w *world, s step) (func(), bool) {
		p := w.choose(s.Member)
		if p == nil {
			return nil, false
		}
		free, ok := w.hold("clock of " + p.id)
		if !ok {
			return nil, false
		}
		p.clock.set(mono, wall, 0)
		return func() {
			free()
			p.clock.set(1, 1, 0)
		}, true
	}
}

// suspended is a machine that sleeps: all of a process stands still, and its monotonic clock does.
func suspended(w *world, s step) (func(), bool) {
	thaw, ok := freezeMember(w, s)
	if !ok {
		return nil, false
	}
	clock := w.choose(s.Member).clock
	clock.set(0, 1, 0)
	return func() {
		clock.set(1, 1, 0)
		thaw()
	}, true
}
