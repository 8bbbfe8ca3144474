package recipes_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// The recipes of schedules; a schedule's seed, modulo their number, says which is its own.
const (
	ofLock = iota
	ofReadersAndWriters
	ofSemaphore
	ofElection
	ofLease
	ofLockingQueue
	ofPartitioner
	kinds
)

func kindName(kind int) string {
	return [...]string{
		"Lock", "ReadLock and WriteLock", "Semaphore", "Election", "NonBlockingLease", "LockingQueue", "SetPartitioner",
	}[kind]
}

// leases is how many a semaphore has.
const leases = 2

// plan is what is drawn from a seed: what contenders do, and what is done to them.
type plan struct {
	kind    int
	members []*member
}

// member is a contender.
type member struct {
	Name   string
	python bool
	ops    []op
	faults []fault
}

// op is one thing that a contender does. The names are those of contenders.py.
type op struct {
	N       int     `json:"n"`
	Make    string  `json:"make"`    // what it asks for
	Mode    string  `json:"mode"`    // "wait" for it, "try" to get it at once, or wait for some time: "timeout"
	Seconds float64 `json:"seconds"` // how long that is; of a lease, its duration
	Text    string  `json:"text"`    // what is put into a queue
	Parts   int     `json:"parts"`   // how often the hold is looked at, but for the last time
	Pause   float64 `json:"pause"`   // seconds between two looks
	Rest    float64 `json:"rest"`    // seconds until the next
}

// The faults.
const (
	killed       = "killed"        // SIGKILL; another process goes on under the same name
	stoppedShort = "stopped"       // SIGSTOP and SIGCONT, within the life of a session
	stoppedLong  = "stopped long"  // and beyond; then killed, because kazoo may be in the way for ever
	cut          = "cut"           // the connection is reset
	refused      = "refused"       // and no other is let in for a while
	silent       = "silent"        // nothing arrives, for less than a session lasts
	silentLong   = "silent long"   // or for longer
	replyLost    = "reply lost"    // the connection is reset in the place of the answer to a write
	sessionEnded = "session ended" // as an operator would
)

func allFaults() []string {
	return []string{killed, stoppedShort, stoppedLong, cut, refused, silent, silentLong, replyLost, sessionEnded}
}

// deadly faults cost a contender its session.
func deadly(what string) bool {
	return what == killed || what == stoppedLong || what == silentLong || what == sessionEnded
}

// fault is what happens to a contender while it does something.
type fault struct {
	what  string
	op    int
	stage string        // "ask" or "got"
	after time.Duration // since then
	lasts time.Duration
}

func (f fault) String() string {
	return fmt.Sprintf("%s for %v, %v after %q of its operation %d", f.what, f.lasts, f.after, f.stage, f.op)
}

const (
	pythonOps = 4
	goOps     = 5
)

func draw(seed uint64) *plan {
	rng := rand.New(rand.NewPCG(seed, 0))
	p := &plan{kind: int(seed % kinds)}
	for i, python := range []bool{true, true, false, false} {
		name, ops := fmt.Sprintf("go-%d", i-1), goOps
		if python {
			name, ops = fmt.Sprintf("python-%d", i+1), pythonOps
		}
		m := &member{Name: name, python: python}
		for n := range ops {
			m.ops = append(m.ops, p.drawOp(rng, m, n+1))
		}
		p.members = append(p.members, m)
	}
	deaths := []string{killed, stoppedLong, silentLong, sessionEnded}
	for !p.drawFor(rng, deaths[rng.IntN(len(deaths))]) {
		continue
	}
	p.drawFor(rng, allFaults()[seed/kinds%uint64(len(allFaults()))]) // so that each has its turn
	if rng.IntN(2) == 0 {
		p.drawFor(rng, "")
	}
	return p
}

// drawFor plans a fault, a certain one if what is not empty, for one to whom nothing happens yet, and reports whether there is
// such a one.
func (p *plan) drawFor(rng *rand.Rand, what string) bool {
	for _, i := range rng.Perm(len(p.members)) {
		m := p.members[i]
		if len(m.faults) == 0 && (what == "" || slices.Contains(p.faultsOf(m), what)) {
			m.meets(p.drawFault(rng, m, what), p.kind)
			return true
		}
	}
	return false
}

// meets plans that a fault happens to a contender, and that what it does then lasts long enough to be hit.
func (m *member) meets(f fault, kind int) {
	o := &m.ops[f.op-1]
	if kind == ofLockingQueue {
		f.stage = "ask" // there may be nothing to be got
		for i := range m.ops {
			// A Python that was stopped in the middle gives back for whoever has got the entry since.
			if f.what == stoppedLong && m.ops[i].Mode == "release" {
				m.ops[i].Mode = "consume"
			}
		}
	}
	if f.stage == "got" {
		hold := f.after + 200*time.Millisecond
		if f.what == silent || f.what == silentLong {
			hold += f.lasts
		}
		o.Mode, o.Pause, o.Parts = "wait", 0.02, int(hold/(20*time.Millisecond))
	}
	m.faults = []fault{f}
}

func (p *plan) drawOp(rng *rand.Rand, m *member, n int) op {
	o := op{
		N: n, Mode: []string{"wait", "wait", "try", "timeout"}[rng.IntN(4)], Seconds: 0.1 + rng.Float64()/2,
		Parts: 1 + rng.IntN(4), Pause: 0.005 + rng.Float64()/50,
		Rest: 0.02 + rng.Float64()/20, // kazoo starves beside what is faster
	}
	switch p.kind {
	case ofLock:
		o.Make = "Lock"
	case ofReadersAndWriters:
		o.Make = []string{"ReadLock", "ReadLock", "WriteLock"}[rng.IntN(3)]
	case ofSemaphore:
		o.Make = "Semaphore"
	case ofElection:
		o.Make, o.Mode = "Election", "wait" // kazoo's has no other
	case ofLease:
		o.Make, o.Rest = "Lease", 0.2+rng.Float64()/2
		if m.python { // one of kazoo's that is renewed for a shorter time ends earlier
			o.Seconds = float64(1 + len(p.members))
		}
	case ofLockingQueue:
		o.Make, o.Mode = "Get", []string{"consume", "consume", "release"}[rng.IntN(3)]
		if n == 1 || rng.IntN(3) == 0 {
			o.Make, o.Text = "Put", fmt.Sprintf("%s's %d", m.Name, n)
		}
	case ofPartitioner:
		// What happens there is drawn on the way.
	}
	return o
}

// faultsOf are those that may happen to a contender.
func (p *plan) faultsOf(m *member) []string {
	switch {
	case !m.python:
		return []string{cut, refused, silent, silentLong, replyLost, sessionEnded}
	case p.kind == ofLease: // a Python that was stopped in the middle takes the lease from whoever has got it since
		return []string{killed}
	default:
		return []string{killed, stoppedShort, stoppedLong}
	}
}

// drawFault draws a fault, a certain one if what is not empty.
func (p *plan) drawFault(rng *rand.Rand, m *member, what string) fault {
	of := p.faultsOf(m)
	if what == "" {
		what = of[rng.IntN(len(of))]
	}
	f := fault{
		what: what, op: 1 + rng.IntN(len(m.ops)), stage: []string{"ask", "got", "got"}[rng.IntN(3)],
		after: time.Duration(rng.IntN(40)) * time.Millisecond,
		lasts: time.Duration(100+rng.IntN(900)) * time.Millisecond,
	}
	if what == stoppedLong || what == silentLong {
		f.lasts += sessionTimeout + 500*time.Millisecond
	}
	return f
}
