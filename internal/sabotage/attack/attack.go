// Package attack runs executions that break recipes: with all rules they must do no harm, and with the rule switched off
// that answers them (package sabotage) they must do the harm that it is there to prevent, or they show nothing.
package attack

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/kielgo/kiel/internal/sabotage"
)

// Attack is one run of an execution. Its Context has rules switched off; the T's own has not.
type Attack struct {
	*testing.T

	off   []sabotage.Rule
	harms map[string]string
}

// Context is for what is attacked: the rules of this run are off in it.
func (a *Attack) Context() context.Context { return sabotage.Off(a.T.Context(), a.off...) }

// Harmed notes a harm, and how it came about the first time.
func (a *Attack) Harmed(harm, format string, args ...any) {
	if a.harms[harm] == "" {
		a.harms[harm] = fmt.Sprintf(format, args...)
	}
}

// Run runs an execution in bubbles: with all rules, and then it must do no harm; and with the rules off, and then it must
// do this harm and no other. Of several rules each is enough: with one of them off it must do no harm either. Without rules
// a mutant shows the harm (test/mutants).
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

// tries is how often an execution may run until it does the harm that it shows: which goroutine comes first in one virtual
// instant is not always the same.
const tries = 10

// run runs an execution once, or until it does a harm that it must do. Want is that harm, or nothing.
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
		t.Errorf("the rule is off and there was no %q in %d runs, so this execution shows nothing", want, tries)
	})
}
