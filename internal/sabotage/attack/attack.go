// Package attack runs executions that break recipes. With all rules on, an execution must do no harm. With the rule off
// that prevents its harm (package sabotage), it must do that harm: otherwise it proves nothing.
package attack

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/kielgo/kiel/internal/sabotage"
)

// Attack is one run of an execution.
type Attack struct {
	*testing.T

	off   []sabotage.Rule   // the rules that are off in this run
	harms map[string]string // the harms done, and how each was done the first time
}

// Context returns the context for the recipe that is attacked: rules are off in it. In the context of the T all rules are on.
func (a *Attack) Context() context.Context { return sabotage.Off(a.T.Context(), a.off...) }

// Harmed records a harm, and how it was done the first time.
func (a *Attack) Harmed(harm, format string, args ...any) {
	if a.harms[harm] == "" {
		a.harms[harm] = fmt.Sprintf(format, args...)
	}
}

// Run runs an execution in bubbles. With all rules on, the execution must do no harm. With the given rules off, it must do
// this harm and no other. Of several rules each is enough: with one of them off, the execution must do no harm either. If no
// rule is given, a mutant shows the harm (test/mutants).
func Run(t *testing.T, harm string, execution func(a *Attack), rules ...sabotage.Rule) {
	t.Helper()
	run(t, "on", "", execution)
	if len(rules) > 1 {
		for i, r := range rules {
			run(t, fmt.Sprintf("one off %d", i), "", execution, r)
		}
	}
	if len(rules) > 0 {
		run(t, "off", harm, execution, rules...)
	}
}

// tries is how often an execution may run until it does its harm: the order of goroutines at one moment of virtual time
// varies.
const tries = 10

// run runs an execution once, or until it does the harm want. An empty want is no harm.
func run(t *testing.T, name, want string, execution func(a *Attack), off ...sabotage.Rule) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		for range tries {
			harms := map[string]string{}
			synctest.Test(t, func(t *testing.T) { execution(&Attack{T: t, off: off, harms: harms}) })
			for harm, how := range harms {
				if harm != want {
					t.Errorf("%s: %s", harm, how)
				}
			}
			if want == "" || harms[want] != "" || t.Failed() {
				return
			}
		}
		t.Errorf("the rule is off, but %d runs did no %q: this execution proves nothing", tries, want)
	})
}
