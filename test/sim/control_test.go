package sim_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestControls breaks what handlers must do, and looks at what is found. That proves that the simulation bites, as do
// ownership-no-claims.patch and consumer-commit-before-release.patch of test/mutants, for what the library must do.
func TestControls(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		lax   manners
		seeds int      // in so many it must be found
		finds []string // these invariants, one of them
	}{
		{"commit after release", manners{commitLate: true}, 3, []string{"S4"}},
		{"trust not asked for", manners{trust: true}, 10, []string{"S1", "S4"}},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			for seed := 3; seed <= 3*c.seeds; seed += 3 { // those with little calm
				p := newPlan(uint64(seed), 8*time.Hour, 3)
				res := simulate(t, p, c.lax)
				if len(res.violations) == 0 {
					continue
				}
				if v := res.violations[0]; !slices.Contains(c.finds, v.invariant) {
					t.Fatalf("found %v, not %v", v, c.finds)
				}
				t.Attr("found", fmt.Sprintf("seed %d, after %d faults", seed, res.faults))
				return
			}
			t.Errorf("nothing found in %d seeds", c.seeds)
		})
	}
}

// A failing plan gets shorter, and still fails.
func TestShrink(t *testing.T) {
	lax := manners{commitLate: true}
	p := newPlan(3, 8*time.Hour, 3)
	res := simulate(t, p, lax)
	if len(res.violations) == 0 {
		t.Fatal("it does not fail")
	}
	all := p.ids(res.phase)
	few := shrink(t, p, all, lax)
	if len(few) > max(1, len(all)/2) {
		t.Errorf("%d of %d steps are left: %v", len(few), len(all), few)
	}
	if failed, tried := rate(t, p.only(few), lax, 0); failed == 0 || tried != reruns {
		t.Errorf("what is left fails in %d of %d runs, which should be %d", failed, tried, reruns)
	}
	flag := strings.Trim(strings.ReplaceAll(fmt.Sprint(few), " ", ","), "[]")
	if got := parseIDs(t, flag); !slices.Equal(got, few) {
		t.Errorf("flag -keep reads %v as %v", few, got)
	}
	t.Attr("steps", fmt.Sprintf("%d of %d", len(few), len(all)))
}

// The same seed makes the same plan, another seed another; and what a plan says is done at the same times in each run.
func TestPlansAreSeeded(t *testing.T) {
	if a, b := planOf(5).String(), planOf(5).String(); a != b {
		t.Errorf("seed 5 is both\n%s\n%s", a, b)
	}
	if planOf(5).String() == planOf(6).String() {
		t.Error("seeds 5 and 6 are alike")
	}
	p := newPlan(3, 24*time.Hour, 3)
	var before []string
	for range 3 {
		res := simulate(t, p, manners{})
		if len(res.violations) > 0 {
			t.Fatal(res.violations[0])
		}
		if before != nil && !slices.Equal(before, res.injected) {
			t.Errorf("injected\n%s\nand\n%s", strings.Join(before, "\n"), strings.Join(res.injected, "\n"))
		}
		before = res.injected
	}
	if len(before) < 10 {
		t.Errorf("only %d faults were injected", len(before))
	}
}
