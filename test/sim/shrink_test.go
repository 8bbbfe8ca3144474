package sim_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// What may be spent on a failure, in real time.
const (
	reruns      = 20              // however long they take
	calmTime    = time.Minute     // for as many without the calm
	shrinkTime  = 2 * time.Minute // after all of them
	shrinkTries = 4               // of a shorter schedule, before it counts as one that does not fail
)

// report prints a failure: its plan, what happened last, how often the seed fails, and a shorter schedule that still does.
func report(t *testing.T, res *result, lax manners) {
	t.Helper()
	p := res.plan
	t.Errorf("seed %d failed\n%s\n%s", p.Seed, p.until(res.phase), res.tail)
	for _, v := range res.violations {
		t.Errorf("seed %d: %v", p.Seed, v)
	}
	failed, tried := rate(t, p, lax, 0)
	t.Errorf("seed %d: failed again %d times of %d", p.Seed, failed, tried)
	failed, tried = rate(t, p.only(p.ids(res.phase)), lax, calmTime)
	t.Errorf("seed %d: %d times of %d without the calm between the phases", p.Seed, failed, tried)
	if failed == 0 {
		return
	}
	keep := shrink(t, p, p.ids(res.phase), lax)
	t.Errorf("seed %d: %d of %d steps suffice\n%vgo test ./test/sim -run=TestDays -tries=20 %s", p.Seed, len(keep),
		len(p.ids(res.phase)), p.only(keep), replayFlags(p, keep))
}

func replayFlags(p *plan, keep []id) string {
	var names []string
	for _, i := range keep {
		names = append(names, i.String())
	}
	flags := fmt.Sprintf("-seed=%d -group=%v -hours=%g -members=%d", p.Seed, p.Group, p.Hours, p.Members)
	if p.Drills {
		flags = fmt.Sprintf("-seed=%d -group=%v -drills -members=%d", p.Seed, p.Group, p.Members)
	}
	if p.Deploys {
		flags = fmt.Sprintf("-seed=%d -group=%v -topics -members=%d", p.Seed, p.Group, p.Members)
	}
	return flags + " -keep=" + strings.Join(names, ",")
}

// rate runs a plan again and again, and counts failures. It is cut short after a time, if that is not 0.
func rate(t *testing.T, p *plan, lax manners, limit time.Duration) (failed, tried int) {
	t.Helper()
	for began := time.Now(); tried < reruns && (limit == 0 || time.Since(began) < limit); tried++ {
		if len(simulate(t, p, lax).violations) > 0 {
			failed++
		}
	}
	return failed, tried
}

// shrink leaves out steps as long as the rest still fails: first halves of what is left, then smaller and smaller parts (delta
// debugging). What is left after the time for it may be left out in part, too.
func shrink(t *testing.T, p *plan, keep []id, lax manners) []id {
	t.Helper()
	began := time.Now()
	fails := func(ids []id) bool {
		for range shrinkTries {
			if time.Since(began) > shrinkTime {
				return false
			}
			if len(simulate(t, p.only(ids), lax).violations) > 0 {
				return true
			}
		}
		return false
	}
	for size := (len(keep) + 1) / 2; size > 0 && len(keep) > 1; {
		left := len(keep)
		for from := 0; from < len(keep); {
			rest := slices.Delete(slices.Clone(keep), from, min(from+size, len(keep)))
			if len(rest) > 0 && fails(rest) {
				keep = rest
			} else {
				from += size
			}
		}
		switch {
		case size > 1:
			size = (size + 1) / 2
		case len(keep) == left:
			size = 0
		}
	}
	return keep
}
