package ownership_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/session"
)

// unclaimed is how many partitions are not claimed, by reason.
type unclaimed struct{ budget, name, persistent, refused, stuck int }

// wantUnclaimed checks the metric that counts them.
func wantUnclaimed(t *testing.T, reg *prometheus.Registry, n unclaimed) {
	t.Helper()
	want := fmt.Sprintf(`
# HELP kiel_unclaimed_partitions Partitions that were allocated to this member and that it does not claim, by reason.
# TYPE kiel_unclaimed_partitions gauge
kiel_unclaimed_partitions{group="g",reason="budget"} %d
kiel_unclaimed_partitions{group="g",reason="name"} %d
kiel_unclaimed_partitions{group="g",reason="persistent"} %d
kiel_unclaimed_partitions{group="g",reason="refused"} %d
kiel_unclaimed_partitions{group="g",reason="stuck"} %d
`, n.budget, n.name, n.persistent, n.refused, n.stuck)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "kiel_unclaimed_partitions"); err != nil {
		t.Error(err)
	}
}

// What does not fit the session's budget stays unclaimed, loudly, and is claimed
// when something else was released.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		reg := prometheus.NewPedanticRegistry()
		w.assign(map[string]string{"a": items(10)})
		a := w.join("a", memberOptions{
			Options: ownership.Options{Registerer: reg},
			session: session.Options{EphemeralBudget: 6 * (len(owners) + len("/t:0") + 4)},
		})
		w.within(5*time.Second, "six claims", func() bool { return len(a.owner.Owned()) == 6 })
		time.Sleep(30 * time.Second)
		if n := a.told(session.ErrEphemeralBudget); n != 1 || a.told(ownership.ErrUnclaimed) != 1 {
			t.Errorf("told %d times: %v", n, a.errors())
		}
		wantUnclaimed(t, reg, unclaimed{budget: 4})
		owned := strings.Fields(a.owned())
		rest := owned[:2:2] // and what had no room
		for item := range strings.FieldsSeq(items(10)) {
			if !slices.Contains(owned, item) {
				rest = append(rest, item)
			}
		}
		slices.Sort(rest)
		w.assign(map[string]string{"a": strings.Join(rest, " ")})
		a.owns(5*time.Second, strings.Join(rest, " "))
	})
}

// A partition that the user does not want, or whose name can't be a znode's, is
// not claimed and reported once.
func TestUnclaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		reg := prometheus.NewPedanticRegistry()
		strange := errors.New("not my topic")
		w.owner = map[allocfn.Partition]string{
			{Topic: "t", ID: 0}: "a", {Topic: "u", ID: 0}: "a", {Topic: "u", ID: 1}: "a",
			{Topic: "x/y", ID: 0}: "a", {Topic: "x\x00", ID: 0}: "a", {Topic: "größe", ID: 0}: "a", {Topic: "..", ID: 0}: "a",
		}
		a := w.join("a", memberOptions{Options: ownership.Options{
			Registerer: reg,
			Accept: func(p allocfn.Partition) error {
				if p.Topic == "u" {
					return strange
				}
				return nil
			},
		}})
		a.owns(5*time.Second, "..:0 größe:0 t:0")
		a.brain.assign(w.owner) // the same again
		time.Sleep(time.Second)
		if n := a.told(ownership.ErrUnclaimed); n != 4 || a.told(strange) != 2 {
			t.Errorf("told %d times: %v", n, a.errors())
		}
		wantUnclaimed(t, reg, unclaimed{name: 2, refused: 2})
	})
}

// Claims that are refused are reported and tried again; releases that are refused
// make the member give up its session, so that nobody waits for ever.
func TestReleaseForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		w.assign(map[string]string{"a": "t:0"})
		a := w.join("a", memberOptions{session: session.Options{
			ACL: session.WorldACL(session.PermRead | session.PermWrite | session.PermCreate),
		}})
		b := w.join("b", memberOptions{})
		a.owns(5*time.Second, "t:0")
		ses := a.sessionID()
		w.assign(map[string]string{"b": "t:0"})
		took := b.owns(30*time.Second, "t:0")
		if took < 9*time.Second {
			t.Errorf("given up after %v", took)
		}
		if a.told(session.ErrNoAuth) < 3 {
			t.Errorf("errors %v", a.errors())
		}
		if a.sessionID() == ses {
			t.Error("the session was not given up")
		}
	})
}

func TestClaimForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		a := w.join("a", memberOptions{session: session.Options{ACL: session.WorldACL(session.PermRead)}})
		b := w.join("b", memberOptions{})
		_ = a
		w.assign(map[string]string{"a": "t:0"})
		w.within(time.Minute, "told", func() bool { return a.told(session.ErrNoAuth) > 5 })
		before := requests(w)
		time.Sleep(10 * time.Second)
		if n := requests(w) - before; n > 60 {
			t.Errorf("%d requests in 10 s", n)
		}
		_ = b
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		reg := prometheus.NewPedanticRegistry()
		w.assign(map[string]string{"a": "t:0 t:1 u:0"})
		a := w.join("a", memberOptions{Options: ownership.Options{Registerer: reg, RebalanceTimeout: 5 * time.Second}, drain: time.Minute})
		b := w.join("b", memberOptions{})
		a.owns(5*time.Second, "t:0 t:1 u:0")
		time.Sleep(time.Second)
		w.assign(map[string]string{"a": "t:0", "b": "t:1 u:0"})
		b.owns(6*time.Second, "t:1 u:0")
		want := `
# HELP kiel_claims_total Attempts to claim a partition, by result.
# TYPE kiel_claims_total counter
kiel_claims_total{group="g",result="conflict"} 0
kiel_claims_total{group="g",result="error"} 0
kiel_claims_total{group="g",result="ok"} 3
kiel_claims_total{group="g",result="timeout"} 0
# HELP kiel_consumer_drain_timeouts_total Handlers that did not return in time after revocation or loss.
# TYPE kiel_consumer_drain_timeouts_total counter
kiel_consumer_drain_timeouts_total{group="g"} 2
# HELP kiel_owned_partitions Partitions that this member owns.
# TYPE kiel_owned_partitions gauge
kiel_owned_partitions{group="g",topic="t"} 1
# HELP kiel_partitions_moved_total Partitions that came to this member, were revoked from it, or lost.
# TYPE kiel_partitions_moved_total counter
kiel_partitions_moved_total{direction="assigned",group="g"} 3
kiel_partitions_moved_total{direction="lost",group="g"} 2
kiel_partitions_moved_total{direction="revoked",group="g"} 0
# HELP kiel_rebalances_failed_total Rebalances that failed, by stage.
# TYPE kiel_rebalances_failed_total counter
kiel_rebalances_failed_total{group="g",stage="callback"} 0
kiel_rebalances_failed_total{group="g",stage="claim"} 0
kiel_rebalances_failed_total{group="g",stage="revoke"} 2
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "kiel_claims_total", "kiel_consumer_drain_timeouts_total",
			"kiel_owned_partitions", "kiel_partitions_moved_total", "kiel_rebalances_failed_total"); err != nil {
			t.Error(err)
		}
		for name, want := range map[string]int{
			"kiel_claim_wait_seconds": 1, "kiel_rebalance_duration_seconds": 2, "kiel_assignment_divergence_total": 1,
			"kiel_member_info": 1, "kiel_unclaimed_partitions": 5,
		} {
			if n, err := testutil.GatherAndCount(reg, name); err != nil || n != want {
				t.Errorf("%s: %d series, want %d, error %v", name, n, want, err)
			}
		}
		problems, err := testutil.GatherAndLint(reg)
		if err != nil || len(problems) > 0 {
			t.Errorf("lint: %v, %v", problems, err)
		}
		if _, err := ownership.NewFromSource(newBrain(a.ses, "g", "again"), a.work, ownership.Options{Registerer: reg}); err != nil {
			t.Errorf("a second owner on the same registry: %v", err)
		}
	})
}

// A claim that another holds for longer than it may drain is counted.
func TestDivergence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		reg := prometheus.NewPedanticRegistry()
		a := w.join("a", memberOptions{})
		b := w.join("b", memberOptions{Options: ownership.Options{Registerer: reg, RebalanceTimeout: 5 * time.Second}})
		plan := map[allocfn.Partition]string{part("t:0"): "a"}
		a.brain.assign(plan)
		a.owns(5*time.Second, "t:0")
		b.brain.assign(map[allocfn.Partition]string{part("t:0"): "b"})
		time.Sleep(4 * time.Second)
		for i, want := range []int{0, 1, 1} {
			text := fmt.Sprintf("# HELP kiel_assignment_divergence_total Claims found held by another for longer than RebalanceTimeout.\n"+
				"# TYPE kiel_assignment_divergence_total counter\nkiel_assignment_divergence_total{group=\"g\"} %d\n", want)
			if err := testutil.GatherAndCompare(reg, strings.NewReader(text), "kiel_assignment_divergence_total"); err != nil {
				t.Errorf("%d: %v", i, err)
			}
			time.Sleep(4 * time.Second)
		}
		b.brain.assign(plan)
	})
}

func TestNewRefuses(t *testing.T) {
	work := func(context.Context, *ownership.Claim) error { return nil }
	if _, err := ownership.New(nil, work, ownership.Options{}); err == nil {
		t.Error("no error for a nil allocator")
	}
	ses, err := session.New([]string{"zk"}, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ownership.NewFromSource(newBrain(ses, "g", "a"), nil, ownership.Options{}); err == nil {
		t.Error("no error for a nil handler")
	}
	_, err = ownership.NewFromSource(newBrain(ses, "g", "a"), work, ownership.Options{RebalanceTimeout: -1, StopTimeout: -1})
	if err == nil || !strings.Contains(err.Error(), "RebalanceTimeout") || !strings.Contains(err.Error(), "StopTimeout") {
		t.Errorf("error %v", err)
	}
}
