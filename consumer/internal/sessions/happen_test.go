package sessions_test

import (
	"fmt"

	. "github.com/kielgo/kiel/consumer/internal/sessions"
)

// transition is a step from one phase to another.
type transition struct {
	from, to Phase
	by       What
}

// stepper yields what can happen next in a world.
type stepper struct {
	w     world
	bad   checker
	yield func(happening)
	table map[transition]bool // nil for nothing
}

// emit gives an input to member i, in h.to. When the member begins to leave, others get what it had.
func (s *stepper) emit(i int, in Input, h happening) {
	before := h.to.M[i].State.Phase
	to, setups, left := h.to.give(i, in, s.bad)
	h.what.member, h.setups = i, setups
	s.record(before, to.M[i].State.Phase, in.What)
	if m := &to.M[i]; m.State.Phase == Out {
		m.Joined = false
	}
	if !left {
		h.to = to
		s.yield(h)
		return
	}
	for _, plan := range to.plans() {
		stays := true
		for p := range parts {
			stays = stays && (to.Plan[p] == int8(i+1) || to.Plan[p] == plan[p] || to.Plan[p] == 0)
		}
		if stays {
			h.to = to
			h.to.Plan = plan
			s.yield(h)
		}
	}
}

func (s *stepper) record(before, after Phase, by What) {
	if s.table != nil && before != after {
		s.table[transition{before, after, by}] = true
	}
}

func (s *stepper) due(i int, what string, in Input) {
	s.emit(i, in, happening{what: label{i, what, in.P}, to: s.w, due: true})
}

func (s *stepper) fault(i int, what string, in Input, change func(*world)) {
	h := happening{what: label{i, what, in.P}, to: s.w}
	change(&h.to)
	s.emit(i, in, h)
}

// all yields all that can happen.
func (s *stepper) all() {
	for i := range members {
		s.ownership(i)
		s.program(i)
		s.timers(i)
		for p := range parts {
			s.partition(i, p)
		}
	}
	for _, plan := range s.w.plans() {
		if s.w.Left.Plans > 0 && plan != s.w.Plan {
			h := happening{what: label{0, "new plan " + fmt.Sprint(plan), 0}, to: s.w}
			h.to.Left.Plans--
			h.to.Plan = plan
			s.yield(h)
		}
	}
}

// ownership yields what ownership of member i may do that is not about one partition.
func (s *stepper) ownership(i int) {
	w, m := &s.w, &s.w.M[i]
	mine := w.mine(i)
	switch {
	case !m.Joined:
		return
	case !m.Trusted:
		h := happening{what: label{i, "trusts again", 0}, to: s.w, due: true}
		h.to.M[i].Trusted = true
		s.yield(h)
		h = happening{what: label{i, "expires", 0}, to: s.w, due: true}
		for p := range parts {
			if h.to.Table[p] == int8(i+1) {
				h.to.Table[p] = 0
			}
		}
		if h.to.Table != w.Table {
			s.yield(h)
		}
		return
	case m.State.Leaving:
		return
	}
	if !m.Knows || m.Heard != mine {
		h := happening{what: label{i, "acts on plan", int(mine)}, to: s.w, due: true}
		h.to.M[i].Knows, h.to.M[i].Heard = true, mine
		if w.Left.Apart {
			s.yield(h)
		} else {
			s.emit(i, Input{What: Plan, Mine: mine.list()}, h)
		}
	}
	if plan := (Input{What: Plan, Mine: mine.list()}); m.Knows && (!m.State.Planned || m.planned() != mine) {
		if w.Left.Apart {
			s.due(i, "is told of the plan", plan)
		}
	} else if m.Knows && s.bad != nil {
		same, do := m.State.step(plan)
		if same != m.State || len(do) > 0 {
			s.bad("S5", "a plan that changes nothing disturbs %d", i)
		}
	}
	if w.Left.Trust > 0 {
		h := happening{what: label{i, "loses trust", 0}, to: s.w}
		h.to.Left.Trust--
		h.to.M[i].Trusted, h.to.M[i].Knows, h.to.M[i].Heard = false, false, 0
		h.to, _, _ = h.to.give(i, Input{What: Distrust}, s.bad)
		for p := range parts {
			h.to, _, _ = h.to.give(i, Input{What: Lost, P: p}, s.bad)
		}
		s.yield(h)
	}
}

// partition yields what may happen to one partition in member i.
func (s *stepper) partition(i, p int) {
	w, m := &s.w, &s.w.M[i]
	q, bit := m.State.Parts[p], set(1)<<p
	wanted := m.Joined && m.Trusted && m.Knows && m.Heard.has(p) && !m.State.Leaving
	ours := w.Table[p] == int8(i+1)
	switch {
	case wanted && q.Claim == Free && (w.Table[p] == 0 || ours):
		h := happening{what: label{i, "claims", p}, to: s.w, due: true}
		h.to.Table[p] = int8(i + 1)
		s.emit(i, Input{What: Claimed, P: p}, h)
	case ours && (!m.Joined || m.Trusted && (q.Claim == Free && !wanted && (m.Knows || m.State.Leaving) || q.Claim == Gone && q.Use == Stuck)):
		h := happening{what: label{i, "sweeps", p}, to: s.w, due: true}
		h.to.Table[p] = 0
		s.yield(h)
	}
	if q.Claim == Held && !wanted && m.Trusted && (m.Knows || m.State.Leaving) {
		s.due(i, "revoked", Input{What: WasRevoked, P: p})
	}
	if (q.Claim == Held || q.Claim == Revoked) && w.Left.Vanish > 0 {
		s.fault(i, "vanished", Input{What: Lost, P: p}, func(x *world) { x.Left.Vanish--; x.Table[p] = 0 })
	}
	if w.Left.Blocked > 0 && wanted && q.Claim == Free && q.Mine && !q.Blocked && w.Table[p] == 0 {
		s.fault(i, "blocked", Input{What: Blocked, P: p}, func(x *world) { x.Left.Blocked--; x.Table[p] = -1 })
	}
	if !m.State.Kind.Eager && q.Use == Runs && (q.Claim == Revoked || q.Claim == Gone) && m.State.InSession() {
		h := happening{what: label{i, "overtime", p}, to: s.w, due: w.Hang.Member != 0, timer: true, over: true}
		if ours {
			h.to.Table[p] = 0
		}
		s.emit(i, Input{What: Overtime, P: p}, h)
	}
	hung := int(w.Hang.Member) == i+1 && int(w.Hang.What) == p
	asked := !m.State.InSession() || q.Claim != Held
	switch {
	case m.Handlers&bit == 0 || hung:
	case asked:
		s.due(i, "returned", Input{What: Returned, P: p})
	case w.Left.Exits > 0:
		s.fault(i, "returned by itself", Input{What: Returned, P: p}, func(x *world) {
			x.Left.Exits--
			before := x.M[i].State.Phase
			*x, _, _ = x.give(i, Input{What: ByItself, P: p}, s.bad)
			s.record(before, x.M[i].State.Phase, ByItself)
		})
	}
	if q.Use == Runs && w.Left.Hangs > 0 {
		s.hangs(i, p)
	}
	if q.Use == Commits {
		s.due(i, "committed", Input{What: Committed, P: p})
	}
}

func (s *stepper) hangs(i, in int) {
	h := happening{what: label{i, "hangs in", in}, to: s.w}
	h.to.Left.Hangs--
	h.to.Hang = hang{int8(i + 1), int8(in)}
	s.yield(h)
}

// program yields what the program of member i may do.
func (s *stepper) program(i int) {
	w, m := &s.w, &s.w.M[i]
	hung := func(in int) bool { return int(w.Hang.Member) == i+1 && int(w.Hang.What) == in }
	if m.Setup && !hung(inSetup) {
		s.due(i, "Setup returned", Input{What: SetupReturned})
		if w.Left.Fails > 0 {
			s.fault(i, "Setup failed", Input{What: SetupFailed}, func(x *world) { x.Left.Fails-- })
		}
	}
	if m.Cleanup && !hung(inCleanup) {
		s.due(i, "Cleanup returned", Input{What: CleanupReturned})
	}
	if m.Setup && w.Left.Hangs > 0 {
		s.hangs(i, inSetup)
	}
	if m.Cleanup && w.Left.Hangs > 0 {
		s.hangs(i, inCleanup)
	}
	quiet := w.Quiet.has(i)
	if m.Joined && m.State.Phase == Between && !quiet && !m.State.Leaving {
		s.due(i, "calls", Input{What: Consume, Kind: m.Kind})
		if w.Left.Quiet > 0 {
			h := happening{what: label{i, "calls no more", 0}, to: s.w}
			h.to.Left.Quiet--
			h.to.Quiet |= 1 << i
			s.yield(h)
		}
	}
	if free := m.Handlers == 0 && !m.Setup && !m.Cleanup; !m.Joined && w.Left.Joins > 0 && !quiet && free { // abandoned calls have returned
		s.join(i)
	}
	if m.Joined && m.InCall && !m.State.Leaving && w.Left.Stops > 0 {
		s.fault(i, "is stopped", Input{What: Stop}, func(x *world) { x.Left.Stops-- })
	}
}

func (s *stepper) join(i int) {
	h := happening{what: label{i, "joins", 0}, to: s.w}
	h.to.Left.Joins--
	h.to.M[i] = member{Kind: s.w.M[i].Kind, Joined: true, Trusted: true}
	to, setups, _ := h.to.give(i, Input{What: Consume, Kind: h.to.M[i].Kind}, s.bad)
	for _, plan := range to.plans() {
		h.to, h.setups = to, setups
		h.to.Plan = plan
		s.yield(h)
	}
}

func (s *stepper) timers(i int) {
	m := &s.w.M[i]
	for _, w := range []What{WaitOver, PauseOver, Aged, GainOver, HalfOver, AllOver, IdleOver, BackOver} {
		h := happening{what: label{i, "timer", int(w)}, to: s.w, due: true, timer: true}
		switch w {
		case AllOver: // what does not hang returns before
			h.due, h.over = int(s.w.Hang.Member) == i+1 || m.State.any(Stuck), true
			if !m.State.Half {
				continue
			}
		case IdleOver:
			h.due, h.over = s.w.Quiet.has(i), true
			if !h.due {
				continue
			}
		case BackOver:
			h.over = true
		default:
		}
		if m.Joined && m.State.waits(w) {
			s.emit(i, Input{What: w}, h)
		} else if m.State.Phase == Out && m.State.waits(w) && s.bad != nil {
			s.bad("S5", "timer %d runs on after the member has left", w)
		} else if s.bad != nil && !m.State.waits(w) && w != IdleOver && w != BackOver {
			if to, do := m.State.step(Input{What: w}); to != m.State || len(do) > 0 {
				s.bad("S5", "timer %d has an effect though it does not run", w)
			}
		}
	}
}

func (f flat) any(u Use) bool {
	for _, q := range f.Parts {
		if q.Use == u {
			return true
		}
	}
	return false
}
