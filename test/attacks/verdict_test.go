package attacks_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
)

// harm is a way in which the promise can be broken.
type harm string

const (
	overlap     harm = "overlap"      // two owners
	claimLost   harm = "claim-lost"   // a member's claim was removed by another
	unowned     harm = "unowned"      // a partition stays without an owner
	sessionLost harm = "session-lost" // though others' live on
	diverged    harm = "diverged"     // members hold different mappings
	overwritten harm = "overwritten"  // what the owner has written, by who is not
	lateCommit  harm = "late-commit"  // by a member that owns the partition no more
	dropped     harm = "dropped"      // claims, though nothing was wrong with them
	stalled     harm = "stalled"      // an owner whose work is refused for ever
	storm       harm = "storm"        // too many rebalances
	otherHarm   harm = "other"        // what else the checker of event logs found
)

// outcome is what an execution came to.
type outcome struct {
	margin  time.Duration // between two owners of a partition; below zero: they overlap
	figures []string      // more of them, as "key=value"
	harms   map[harm]string
}

// harmed notes a harm.
func (o *outcome) harmed(h harm, format string, args ...any) {
	if o.harms[h] == "" {
		o.harms[h] = fmt.Sprintf(format, args...)
	}
}

// figure notes a figure.
func (o *outcome) figure(key string, value any) {
	if d, ok := value.(time.Duration); ok {
		value = d.Round(time.Millisecond)
	}
	o.figures = append(o.figures, fmt.Sprintf("%s=%v", key, value))
}

// forgive takes back harms that are somebody else's doing: an operator's, by what the package ownership promises.
func (o *outcome) forgive(hs ...harm) {
	for _, h := range hs {
		delete(o.harms, h)
		if h == overlap && o.margin < 0 {
			o.figure("forgiven-overlap", -o.margin)
			o.margin = 0
		}
	}
}

// worse merges the outcome of another run of the same execution.
func (o *outcome) worse(other *outcome) *outcome {
	if o == nil {
		return other
	}
	if other.margin < o.margin || o.margin == 0 {
		o.margin = other.margin
	}
	for h, s := range other.harms {
		o.harmed(h, "%s", s)
	}
	return o
}

// judge has the checker of event logs read what the members did.
func judge(logs []eventlog.Log) *outcome {
	o := &outcome{harms: map[harm]string{}}
	all := terms(logs)
	o.margin = margin(all)
	report := eventlog.Check(logs, eventlog.Expect{})
	for _, v := range report.Violations {
		if strings.Contains(v, " claimed it ") {
			o.harmed(overlap, "%s", v)
		} else {
			o.harmed(otherHarm, "%s", v)
		}
	}
	if report.Late > 0 { // handlers here ask before each act
		o.harmed(otherHarm, "%d acts after the end of trust", report.Late)
	}
	if (report.Overlaps > 0) != (o.harms[overlap] != "") || (o.margin < 0) != (report.Overlaps > 0) {
		o.harmed(otherHarm, "%d overlaps, margin %v: %s", report.Overlaps, o.margin, report)
	}
	return o
}

// withstood requires that an execution did no harm.
func withstood(t *testing.T, o *outcome) {
	t.Helper()
	o.print(t)
	for h, s := range o.harms {
		t.Errorf("%s: %s", h, s)
	}
}

// broken requires that an execution did harm.
func broken(t *testing.T, want harm, o *outcome) {
	t.Helper()
	o.print(t)
	if o.harms[want] == "" {
		t.Errorf("the rule is off and there was no %s, so this execution shows nothing; other harm: %v", want, o.harms)
		return
	}
	t.Logf("%s: %s", want, o.harms[want])
}

func (o *outcome) print(t *testing.T) {
	t.Helper()
	switch {
	case o.margin > 0:
		t.Attr("margin", o.margin.Round(time.Millisecond).String())
	case o.margin < 0:
		t.Attr("overlap", (-o.margin).Round(time.Millisecond).String())
	}
	if len(o.figures) > 0 {
		t.Attr("figures", strings.Join(o.figures, " "))
	}
}
