package sessions_test

import (
	"fmt"
	"slices"

	. "github.com/kielgo/kiel/consumer/internal/sessions"
)

const (
	members = 2
	parts   = 2
)

// flat is a State that can be compared.
type flat struct {
	Head
	Parts [parts]Part
}

func (f flat) step(in Input) (flat, []Action) {
	s, all := Of(f.Head, slices.Clone(f.Parts[:])), Of(f.Head, slices.Clone(f.Parts[:]))
	do := s.Step(in)
	if want := all.StepAll(in); !s.Equal(&all) || !EqualActions(do, want) {
		panic(fmt.Sprintf("%v in %+v: %v and %+v, looking at all partitions %v and %+v", in, f, do, s, want, all))
	}
	if !s.Counted() {
		panic(fmt.Sprintf("the counts are wrong after %v in %+v", in, f))
	}
	f.Head = s.Head
	copy(f.Parts[:], s.Parts)
	return f, do
}

func (f flat) waits(w What) bool {
	s := Of(f.Head, f.Parts[:])
	return s.Waits(w)
}

// set is a set of partitions.
type set uint8

func (s set) has(p int) bool { return s>>p&1 != 0 }

func (s set) list() (out []int) {
	for p := range parts {
		if s.has(p) {
			out = append(out, p)
		}
	}
	return out
}

// member is one member of a world, with what the rules need to know.
type member struct {
	State flat
	Kind  Kind // of its calls

	// Its ownership.
	Joined, Trusted, Knows bool // Knows a plan of the incarnation
	Heard                  set  // what that plan gives to it

	// Its program.
	InCall, InSession, Setup, CtxEnded, Cleanup bool
	Claims                                      set // of Setup
	Handlers                                    set // ConsumeClaims that run
	Opened                                      set // ConsumeClaims that were called in this session
	Dirty                                       set // marks that are not stored
}

// world is a group: its members, the claims in ZooKeeper, the plan, and what may still happen.
type world struct { //nolint:recvcheck // give works on a copy, which it returns
	M     [members]member
	Table [parts]int8 // the member that has the claim's znode, plus one
	Plan  [parts]int8 // the member that the partition is planned for, plus one
	Left  budget
	Quiet set  // members whose programs call no more
	Hang  hang // the one call of a program that never returns
}

// budget is how often each fault may still happen.
type budget struct {
	Joins, Plans, Trust, Vanish, Exits, Stops, Quiet, Hangs, Fails, Blocked uint8

	Pauses bool // Paused and Young take their time; else they are over at once
	Apart  bool // the member hears of a plan some time after ownership acts on it, or has heard of a newer one
}

// hang is a call that never returns.
type hang struct {
	Member int8 // plus one
	What   int8 // a partition, or one of these
}

const (
	inSetup   = 10
	inCleanup = 11
)

// label says what happens.
type label struct {
	member int
	text   string
	p      int
}

func (l label) String() string { return fmt.Sprintf("%d %s %d", l.member, l.text, l.p) }

// happening is something that can happen next.
type happening struct {
	what   label
	to     world
	due    bool // it will happen: it is no fault, and no change
	timer  bool // it takes its time
	over   bool // it needs all of RebalanceTimeout
	setups [members]uint8
}

func (w *world) inGroup(i int) bool { return w.M[i].Joined && !w.M[i].State.Leaving }

func (w *world) mine(i int) (s set) {
	for p := range parts {
		if w.Plan[p] == int8(i+1) {
			s |= 1 << p
		}
	}
	return s
}

func (m *member) planned() (s set) {
	for p := range parts {
		if m.State.Parts[p].Mine {
			s |= 1 << p
		}
	}
	return s
}

func (m *member) held() (s set) {
	for p := range parts {
		if m.State.Parts[p].Claim == Held {
			s |= 1 << p
		}
	}
	return s
}

// plans returns the plans that are possible now.
func (w *world) plans() (out [][parts]int8) {
	var in []int8
	for i := range members {
		if w.inGroup(i) {
			in = append(in, int8(i+1))
		}
	}
	if len(in) == 0 {
		return [][parts]int8{{}}
	}
	var plan [parts]int8
	var fill func(p int)
	fill = func(p int) {
		if p == parts {
			out = append(out, plan)
			return
		}
		for _, i := range in {
			plan[p] = i
			fill(p + 1)
		}
	}
	fill(0)
	return out
}

// checker is told of each rule that is broken.
type checker func(rule, format string, args ...any)

// give gives an input to a member, and does what it says.
func (w world) give(i int, in Input, bad checker) (_ world, setups [members]uint8, left bool) {
	m := &w.M[i]
	before := m.State
	m.before(in)
	var do []Action
	if bad == nil {
		bad = func(string, string, ...any) {}
	}
	m.State, do = before.step(in)
	if !w.Left.Pauses && (m.State.Paused || m.State.Young) {
		m.State.Paused, m.State.Young = false, false
	}
	for _, a := range do {
		switch a.Do {
		case CallSetup:
			setups[i]++
			w.checkSetup(i, a, bad)
			m.InSession, m.Setup, m.CtxEnded, m.Opened = true, true, false, 0
			m.Claims = 0
			for _, p := range a.Claims {
				m.Claims |= 1 << p
			}
		case Leave:
			left = true
		case Commit, Release:
			w.checkPartition(i, before, in, a, bad)
		default:
			m.checkSession(in, a, bad)
		}
	}
	for p := range parts {
		q := m.State.Parts[p]
		if (q.Claim == Held || q.Claim == Revoked) && w.Table[p] != int8(i+1) {
			bad("S1", "%d believes in a claim of %d that does not exist", i, p)
		}
		if q.Claim == Free && q.Use != Idle {
			bad("S1", "%d uses %d without a claim", i, p)
		}
	}
	return w, setups, left
}

// before notes what an input says of the program.
func (m *member) before(in Input) {
	bit := set(1) << in.P
	switch in.What {
	case Returned:
		m.Handlers &^= bit
	case SetupReturned, SetupFailed:
		m.Setup = false
		for _, p := range m.Claims.list() { // it may have marked what it was told of
			if u := m.State.Parts[p].Use; m.State.Kind.Eager && m.State.Parts[p].Claim != Gone && (u == Listed || u == Done) {
				m.Dirty |= 1 << p
			}
		}
	case CleanupReturned:
		m.Cleanup, m.InSession = false, false
		for p := range parts { // it may have marked what is not committed
			if q := m.State.Parts[p]; q.Use == Done && q.Claim != Gone {
				m.Dirty |= 1 << p
			}
		}
	case Committed:
		if m.State.Parts[in.P].Use == Commits {
			m.Dirty &^= bit
		}
	case Lost, Overtime:
		m.Dirty &^= bit
	case Consume:
		m.InCall = true
	default:
	}
}

func (w *world) checkSetup(i int, a Action, bad checker) {
	m := &w.M[i]
	var claims set
	for _, p := range a.Claims {
		claims |= 1 << p
	}
	if m.InSession || m.Setup || m.Cleanup {
		bad("S3", "Setup beside an older session")
	}
	if !m.Trusted || !m.Knows {
		bad("S2", "Setup without trust")
	}
	if !m.State.Kind.Eager {
		return
	}
	if want := m.held() & m.planned(); claims != want {
		bad("S2", "Setup with %b, held %b", claims, want)
	}
	if m.Handlers&claims != 0 {
		bad("S2", "a ConsumeClaim of an earlier claim runs")
	}
	for _, p := range a.Claims {
		for j := range members {
			if c := w.M[j].State.Parts[p].Claim; j != i && (c == Held || c == Revoked) {
				bad("S2", "the former owner has not released")
			}
		}
	}
}

// checkSession checks what is done about the session.
func (m *member) checkSession(in Input, a Action, bad checker) {
	bit := set(1) << a.P
	switch a.Do {
	case Open:
		if !m.InSession || m.Setup || m.CtxEnded || m.Cleanup {
			bad("S3", "ConsumeClaim outside of a session")
		}
		if m.State.Kind.Eager && (m.Claims&bit == 0 || m.Opened&bit != 0) {
			bad("S3", "ConsumeClaim of what Claims does not have, or again")
		}
		if m.Handlers&bit != 0 {
			bad("S3", "two ConsumeClaims")
		}
		m.Handlers, m.Opened, m.Dirty = m.Handlers|bit, m.Opened|bit, m.Dirty|bit
	case EndSession:
		if !m.InSession || m.CtxEnded {
			bad("S3", "ended twice")
		}
		if m.State.Kind.Eager && a.Cause == Rebalance && m.held()&m.planned() == m.Claims || !m.State.Kind.Eager && (a.Cause == Rebalance || a.Cause == LostClaim) {
			bad("S5", "the session ends, and nothing has changed")
		}
		m.CtxEnded = true
	case CallCleanup:
		if !m.InSession || m.Setup || !m.CtxEnded || m.Cleanup || m.Handlers != 0 {
			bad("S3", "Cleanup beside Setup or a ConsumeClaim, or again")
		}
		m.Cleanup = true
	case GiveUp:
		if m.State.Kind.Eager && !m.Setup && !m.Cleanup && m.Handlers == 0 { // an incremental one waits for last commits, too
			bad("S5", "gives up though all has returned")
		}
	case Return:
		if !m.InCall || (m.Setup || m.Cleanup || m.Handlers != 0) && !m.State.Over && !m.State.Alone {
			bad("S3", "the call returns beside what it has called (%v)", in.What)
		}
		m.InCall, m.InSession, m.CtxEnded = false, false, false
	default:
	}
}

// checkPartition checks what is done about one partition.
func (w *world) checkPartition(i int, before flat, in Input, a Action, bad checker) {
	m, bit := &w.M[i], set(1)<<a.P
	over := m.State.Over || in.What == AllOver
	early := m.State.Kind.Eager && m.InSession && m.Claims&bit != 0 && !m.State.Half && !over && in.What != CleanupReturned
	if a.Do == Commit {
		switch {
		case w.Table[a.P] != int8(i+1) || !m.Trusted:
			bad("S4", "commits what is lost")
		case m.Setup && !over || m.Handlers&bit != 0:
			bad("S4", "the last commit beside Setup or a ConsumeClaim")
		case early:
			bad("S4", "the last commit before Cleanup has returned")
		}
		return
	}
	if m.Dirty&bit != 0 && !over {
		bad("S4", "released with marks that are not stored")
	}
	if m.Handlers&bit != 0 {
		bad("S1", "released beside a ConsumeClaim")
	}
	if early && before.Parts[a.P].Use != Idle && before.Parts[a.P].Claim != Gone && in.What != Lost && in.What != Ended {
		bad("S4", "released before Cleanup has returned")
	}
	m.Dirty &^= bit
	if c := before.Parts[a.P].Claim; (c == Revoked || c == Held) && w.Table[a.P] == int8(i+1) && m.Trusted && in.What != Lost && in.What != Overtime && in.What != Ended {
		w.Table[a.P] = 0
	}
}

// good returns "" if each partition is read by the member that the plan names, and each member's session goes on. With others it
// asks only what one that hangs costs the others.
func (w *world) good(others bool) string {
	hangs := func(i int) bool { return int(w.Hang.Member) == i+1 }
	excused := func(i int) bool { return others && (hangs(i) || w.Quiet.has(i)) }
	setup := func(i int) bool { return hangs(i) && w.Hang.What == inSetup && w.M[i].State.Phase == InSetup } // it may take as long as nothing changes
	for i := range members {
		m := &w.M[i]
		switch {
		case !m.Joined || excused(i) || setup(i):
		case m.State.Phase != Running:
			return fmt.Sprintf("%d is in phase %d", i, m.State.Phase)
		case !m.State.Planned || w.mine(i) != m.planned():
			return fmt.Sprintf("%d does not know the plan", i)
		}
	}
	for p := range parts {
		i := int(w.Plan[p]) - 1
		if i < 0 || excused(i) || setup(i) || others && int(w.Hang.What) == p && w.Hang.Member != 0 {
			continue
		}
		if q := w.M[i].State.Parts[p]; (q.Claim != Held || q.Use != Runs) && w.Table[p] >= 0 {
			return fmt.Sprintf("%d is not read by %d", p, i)
		}
	}
	return ""
}
