package sim_test

import (
	"errors"
	"slices"
	"time"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/ownership"
)

// life is when a process began and ended.
type life struct {
	id, name   string
	double     bool
	began, end time.Time // zero end: it lives
	heard      time.Time // when the servers got what a black hole had held back until after the end
}

// pause is when the clock of the servers stood: their machines were stopped.
type pause struct{ from, to time.Time }

// delivers notes that the servers get now what processes sent that have ended since.
func (w *world) delivers(since time.Time, which func(l *life) bool) {
	for _, l := range w.lives {
		if !l.end.IsZero() && !l.end.Before(since) && which(l) {
			l.heard = time.Now()
		}
	}
}

// unexpired says whether this process ended while the session of one before it, that has gone, could not have expired yet by the
// clock of the servers: because that stood, or because what the other had sent came late.
func (w *world) unexpired(p *process) bool {
	for _, other := range w.lives {
		if other.id == p.id || other.name != p.name || other.end.IsZero() {
			continue
		}
		end := other.end
		if other.heard.After(end) {
			end = other.heard
		}
		passed, stood := p.life.end.Sub(end), time.Duration(0)
		for _, s := range w.pauses {
			to := s.to
			if to.IsZero() || to.After(p.life.end) {
				to = p.life.end
			}
			if s.from.Before(end) {
				s.from = end
			}
			stood += max(0, to.Sub(s.from))
		}
		if (stood > 0 || end != other.end) && passed-stood <= w.plan.Timeout+w.plan.Tick {
			return true
		}
	}
	return false
}

// live returns the processes that are members, or should soon be.
func (w *world) live() []*process {
	var list []*process
	for _, p := range w.slots {
		if p != nil {
			list = append(list, p)
		}
	}
	return list
}

// supervise buries processes that have ended, and starts members again that should be there.
func (w *world) supervise() {
	for _, p := range w.all {
		if p.life.end.IsZero() && (p.hasEnded() || p.isDead()) {
			p.life.end = time.Now()
		}
	}
	w.all = slices.DeleteFunc(w.all, func(p *process) bool {
		select {
		case <-p.gone:
			p.collect()
			return p.hasEnded()
		default:
			return false
		}
	})
	w.doubles = slices.DeleteFunc(w.doubles, func(p *process) bool {
		if !p.hasEnded() {
			return false
		}
		w.ended(p)
		return true
	})
	for slot, p := range w.slots {
		if p == nil || !p.hasEnded() {
			continue
		}
		w.ended(p)
		w.slots[slot] = nil
		if w.wanted[slot] {
			w.slots[slot] = w.start(slot, false)
		}
	}
}

// ended looks at how a process ended.
func (w *world) ended(p *process) {
	switch {
	case p.isDead():
	case errors.Is(p.err, allocator.ErrNameTaken):
		w.cov.hit("duplicate name refused")
		switch {
		case w.rivalled(p):
		case w.unexpired(p):
			w.cov.hit("duplicate name of a session that the servers kept for longer")
		default:
			w.mon.Violate("L2", "%s ended though the plan has no other process of its name: %v", p.id, p.err)
		}
	case errors.Is(p.err, ownership.ErrStuck) && p.hasHung() && !p.isLeaving():
		w.cov.hit("a handler that did not return ended its call") // of an eager session, or of Run when its partition came back
	case p.err != nil && !p.isLeaving():
		w.mon.Violate("L2", "%s ended by itself: %v", p.id, p.err)
	case p.err != nil && !w.trouble:
		w.mon.Violate("S9", "%s could not leave in order though nothing was in its way: %v", p.id, p.err)
	case p.err != nil:
		w.cov.hit("leaving ended with an error") // handlers that were stuck, servers that could not be reached
	}
}

// rivalled says whether this process ended while a double by the plan and who it is a double of were both at work. One that was
// started again after a crash is no reason: it waits until the session before has gone. A double may have gone too, but then its
// session must have been there for as long as a name is waited for.
func (w *world) rivalled(p *process) bool {
	for _, other := range w.lives {
		if other.id == p.id || other.name != p.name || !other.double && !p.double {
			continue
		}
		if other.end.IsZero() || p.life.end.Sub(other.end) <= w.plan.Timeout+w.plan.Tick {
			return true
		}
	}
	return false
}
