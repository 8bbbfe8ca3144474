package sessions_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/kielgo/kiel/consumer/internal/sessions"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// statesForTable is how many states of each group show all steps between phases of the page.
const statesForTable = 15_000

// most is how many states of each group are explored.
var most = flag.Int("states", statesOfAGroup, "the states of each group that are explored")

// explorer visits all states of a small group.
type explorer struct {
	index  map[world]int32
	all    []world
	from   []int32
	why    []label
	limit  int
	broken map[string]string // what breaks a rule, by the rule; the shortest execution
	table  map[transition]bool
}

// report notes an execution that breaks a rule: that which leads to the state at, and then last.
func (e *explorer) report(rule, what string, at int32, last fmt.Stringer) {
	if e.broken[rule] != "" {
		return
	}
	steps := []string{last.String()}
	for ; at > 0; at = e.from[at] {
		steps = append(steps, e.why[at].String())
	}
	slices.Reverse(steps)
	e.broken[rule] = fmt.Sprintf("%s: %s:\n\t%s", rule, what, strings.Join(steps, "\n\t"))
}

func (e *explorer) add(w world, from int32, why label) {
	if _, ok := e.index[w]; !ok {
		e.index[w] = int32(len(e.all))
		e.all, e.from, e.why = append(e.all, w), append(e.from, from), append(e.why, why)
	}
}

// run visits all states, up to the limit.
func (e *explorer) run(start world) {
	e.index, e.broken, e.table = map[world]int32{}, map[string]string{}, map[transition]bool{}
	e.add(start, 0, label{})
	for at := int32(0); int(at) < len(e.all) && len(e.all) < e.limit; at++ {
		var found [][2]string
		s := stepper{w: e.all[at], table: e.table, bad: func(rule, format string, args ...any) {
			found = append(found, [2]string{rule, fmt.Sprintf(format, args...)})
		}}
		s.yield = func(h happening) {
			for _, f := range found {
				e.report(f[0], f[1], at, h.what)
			}
			found = nil
			e.add(h.to, at, h.what)
		}
		s.all()
		for _, f := range found {
			e.report(f[0], f[1], at, label{})
		}
	}
}

// settle checks that the group settles from each state.
type settle struct {
	*explorer
	rule   string
	others bool // nothing may need all of RebalanceTimeout, and it is asked what a call that hangs costs the others
	done   []int8
	setups [][members]uint8 // the most that follow
}

func (s *settle) visit(at int32) [members]uint8 {
	switch s.done[at] {
	case 2:
		return s.setups[at]
	case 1:
		s.report(s.rule, "it never settles", at, label{})
		return [members]uint8{}
	}
	s.done[at] = 1
	var most [members]uint8
	var next []happening
	st := stepper{w: s.all[at], yield: func(h happening) {
		if h.due && (!s.others || !h.over) {
			next = append(next, h)
		}
	}}
	st.all()
	for _, h := range next {
		to, ok := s.index[h.to]
		if !ok {
			continue // beyond the limit
		}
		after := s.visit(to)
		for i := range most {
			most[i] = max(most[i], after[i]+h.setups[i])
		}
	}
	if len(next) == 0 {
		if why := s.all[at].good(s.others); why != "" {
			s.report(s.rule, "it stops: "+why, at, label{})
		}
	}
	s.done[at], s.setups[at] = 2, most
	return most
}

// check visits the states that want selects.
func (s *settle) check(want func(*world) bool) {
	s.done, s.setups = make([]int8, len(s.all)), make([][members]uint8, len(s.all))
	for at := range s.all {
		if want(&s.all[at]) {
			if n := s.visit(int32(at)); max(n[0], n[1]) > 3*parts {
				s.report("L3", fmt.Sprintf("%v Setups follow though nothing changes any more", n), int32(at), label{})
			}
		}
	}
}

// The groups that are explored. Their rules:
//
//	S1  a claim that a member believes in exists; nothing is released beside its ConsumeClaim
//	S2  Claims of an eager Setup are what is held, nobody else believes in them, no earlier ConsumeClaim of them runs
//	S3  no ConsumeClaim before Setup has returned or after the context has ended; in an eager session one for each of Claims; Cleanup
//	    once, beside neither Setup nor a ConsumeClaim; a call returns when these have
//	S4  nothing is released before the marks until Cleanup (until half of the time) are stored; nothing lost is committed
//	S5  what changes nothing of a member does not disturb it
//	L1  when changes end and calls return, all partitions are read by the members that the plan names
//	L2  the same, but for the partition itself, when one call never returns, or one program calls no more; without all of RebalanceTimeout
//	L3  at most as many Setups as partitions follow each plan; a member that leaves changes the plan
var groups = map[string]budget{
	"plans":     {Joins: 2, Plans: 1},
	"hangs":     {Joins: 2, Hangs: 1},
	"trust":     {Joins: 2, Trust: 1},
	"vanish":    {Joins: 2, Vanish: 1},
	"exits":     {Joins: 2, Exits: 1},
	"stops":     {Joins: 2, Stops: 1},
	"quiet":     {Joins: 2, Quiet: 1},
	"fails":     {Joins: 2, Fails: 1},
	"blocked":   {Joins: 2, Blocked: 1},
	"pauses":    {Joins: 2, Exits: 1, Pauses: true},
	"leaves":    {Joins: 1, Stops: 1, Pauses: true},
	"apart":     {Joins: 2, Plans: 1, Apart: true},
	"one":       {Joins: 1, Plans: 1, Trust: 1, Vanish: 1, Exits: 1, Pauses: true},
	"restart":   {Joins: 3, Stops: 1},
	"hang-plan": {Joins: 1, Plans: 1, Hangs: 1, Stops: 1},
	"hang-back": {Joins: 2, Plans: 1, Hangs: 1},
}

var kinds = map[string][members]Kind{
	"eager":       {{Eager: true}, {Eager: true}},
	"mixed":       {{Eager: true}, {Hold: true}},
	"incremental": {{}, {Run: true}},
}

func explore(budget budget, kinds [members]Kind, limit int) *explorer {
	start := world{Left: budget}
	for i := range members {
		start.M[i].Kind = kinds[i]
	}
	e := &explorer{limit: limit}
	e.run(start)
	all := &settle{explorer: e, rule: "L1"}
	all.check(func(*world) bool { return true })
	if budget.Hangs > 0 || budget.Quiet > 0 {
		others := &settle{explorer: e, rule: "L2", others: true}
		others.check(func(w *world) bool { return w.Hang.What != inSetup && (w.Hang.Member != 0 || w.Quiet != 0) })
	}
	return e
}

// A group of two members and two partitions keeps the rules in all states.
func TestAllStates(t *testing.T) {
	began, states, ran, table := time.Now(), 0, 0, map[transition]bool{}
	for name, budget := range groups {
		for kind, kinds := range kinds {
			t.Run(name+"/"+kind, func(t *testing.T) {
				e := explore(budget, kinds, *most)
				states += len(e.all)
				maps.Copy(table, e.table)
				ran++
				t.Logf("%d states", len(e.all))
				for _, rule := range e.broken {
					t.Error(rule)
				}
			})
		}
	}
	t.Logf("%d states in %v", states, time.Since(began))
	if *most == statesForTable && ran == len(groups)*len(kinds) { // with less some steps are not seen, with more some rare ones are
		compareTable(t, table)
	}
}

var phases = []string{"Between", "Waiting", "InSetup", "Running", "Ending", "Cleaning", "Closing", "Out"}

var whats = []string{
	"Plan", "Distrust", "Blocked", "Claimed", "WasRevoked", "Lost", "Overtime", "Ended", "Consume", "Stop", "SetupReturned", "SetupFailed",
	"CleanupReturned", "ByItself", "Returned", "Committed", "WaitOver", "PauseOver", "Aged", "GainOver", "HalfOver", "AllOver", "IdleOver", "BackOver",
}

// compareTable compares the steps between phases with the table of the package's page.
func compareTable(t *testing.T, table map[transition]bool) {
	t.Helper()
	inputs := map[[2]Phase][]string{}
	for by := range What(len(whats)) { // in their order
		for step := range table {
			if step.by == by {
				k := [2]Phase{step.from, step.to}
				inputs[k] = append(inputs[k], whats[by])
			}
		}
	}
	var want []string
	for _, k := range slices.SortedFunc(maps.Keys(inputs), func(a, b [2]Phase) int { return slices.Compare(a[:], b[:]) }) {
		want = append(want, fmt.Sprintf("//\t%-9s%-9s%s", phases[k[0]], phases[k[1]], strings.Join(inputs[k], ", ")))
	}
	page, err := os.ReadFile("doc.go")
	noerr.Must(t, err)
	var got []string
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "//\t") {
			got = append(got, strings.TrimRight(line, "\n"))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the table of doc.go should be:\n%s", strings.Join(want, "\n"))
	}
}
