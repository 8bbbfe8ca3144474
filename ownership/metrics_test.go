package ownership_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/promreg"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/zktest"
)

// lasting is a registry that loses nothing, for what an owner has counted before it ended.
type lasting struct{ *prometheus.Registry }

func (lasting) Unregister(prometheus.Collector) bool { return true }

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
kiel_claims_total{group="g",result="unknown"} 0
# HELP kiel_drain_timeouts_total Handlers that did not return in time after revocation or loss.
# TYPE kiel_drain_timeouts_total counter
kiel_drain_timeouts_total{group="g"} 2
# HELP kiel_owned_partitions Partitions that this member owns.
# TYPE kiel_owned_partitions gauge
kiel_owned_partitions{group="g",topic="t"} 1
# HELP kiel_partitions_moved_total Partitions that came to this member, were revoked from it, or lost.
# TYPE kiel_partitions_moved_total counter
kiel_partitions_moved_total{direction="claimed",group="g"} 3
kiel_partitions_moved_total{direction="lost",group="g"} 2
kiel_partitions_moved_total{direction="revoked",group="g"} 0
# HELP kiel_rebalance_errors_total Errors in rebalances, by stage; callback is one of the allocator, handler a handler or callback of the owner.
# TYPE kiel_rebalance_errors_total counter
kiel_rebalance_errors_total{group="g",stage="claim"} 0
kiel_rebalance_errors_total{group="g",stage="handler"} 0
kiel_rebalance_errors_total{group="g",stage="revoke"} 2
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "kiel_claims_total", "kiel_drain_timeouts_total",
			"kiel_owned_partitions", "kiel_partitions_moved_total", "kiel_rebalance_errors_total"); err != nil {
			t.Error(err)
		}
		for name, want := range map[string]int{
			"kiel_claim_wait_seconds": 1, "kiel_rebalance_duration_seconds": 2, "kiel_claim_waits_overdue_total": 1,
			"kiel_member_info": 1, "kiel_unclaimable_partitions": 6,
		} {
			if n, err := testutil.GatherAndCount(reg, name); err != nil || n != want {
				t.Errorf("%s: %d series, want %d, error %v", name, n, want, err)
			}
		}
		problems, err := testutil.GatherAndLint(reg)
		if err != nil || len(problems) > 0 {
			t.Errorf("lint: %v, %v", problems, err)
		}
	})
}

// series returns the values of all gauges and counters, as name{label=value,…}, without the group.
func series(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				if l.GetName() != "group" {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
			}
			values[fmt.Sprintf("%s{%s}", f.GetName(), strings.Join(labels, ","))] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return values
}

// wantSeries checks some of the values.
func wantSeries(t *testing.T, reg *prometheus.Registry, want map[string]float64) {
	t.Helper()
	got := series(t, reg)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if v, ok := got[name]; !ok || v != want[name] {
			t.Errorf("%s is %v, there %v, want %v", name, v, ok, want[name])
		}
	}
}

// A topic's gauge is there from the plan on that gives the member some of it, also while it owns none, until a plan gives it
// none and all is released. Nothing vanishes when trust ends.
func TestMetricsWithoutTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		reg := prometheus.NewPedanticRegistry()
		a := w.owning("a", "t:0 t:1 u:0", memberOptions{Options: ownership.Options{Registerer: reg}, drain: 3 * time.Second})
		before := len(series(t, reg))
		a.client.BlackHole(zktest.Both)
		w.within(10*time.Second, "trust ends", func() bool { return a.owned() == "" })
		wantSeries(t, reg, map[string]float64{
			"kiel_owned_partitions{topic=t}": 0, "kiel_owned_partitions{topic=u}": 0, "kiel_partitions_moved_total{direction=lost}": 3,
		})
		if n := len(series(t, reg)); n != before {
			t.Errorf("%d series without trust, %d before", n, before)
		}
		a.client.Heal()
		a.owns(time.Minute, "t:0 t:1 u:0")

		w.assign(map[string]string{"a": "t:0", "b": "t:1 u:0"})
		time.Sleep(time.Second)
		wantSeries(t, reg, map[string]float64{"kiel_owned_partitions{topic=t}": 2, "kiel_owned_partitions{topic=u}": 1}) // drains
		time.Sleep(3 * time.Second)
		wantSeries(t, reg, map[string]float64{"kiel_owned_partitions{topic=t}": 1})
		if n := len(series(t, reg)); n != before-1 {
			t.Errorf("%d series without topic u, %d before", n, before)
		}
	})
}

// While one owner of a group lives another on the same registerer fails and says what to do; afterwards it does not.
func TestMetricsOfTwoOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		reg := prometheus.NewPedanticRegistry()
		a := w.owning("a", "t:0", memberOptions{Options: ownership.Options{Registerer: reg}})
		b := w.join("b", memberOptions{Options: ownership.Options{Registerer: reg}})
		<-b.done
		if b.err == nil || !strings.Contains(b.err.Error(), "WrapRegistererWith") {
			t.Errorf("two owners on one registerer: %v", b.err)
		}
		wantSeries(t, reg, map[string]float64{"kiel_owned_partitions{topic=t}": 1})
		a.quit()
		<-a.done
		if got := series(t, reg); len(got) != 0 {
			t.Errorf("left behind: %v", got)
		}
		w.owning("c", "t:0", memberOptions{Options: ownership.Options{Registerer: reg}})
		wantSeries(t, reg, map[string]float64{"kiel_owned_partitions{topic=t}": 1, "kiel_claims_total{result=ok}": 1})
	})
}

// A Registry's counters go on in the next owner. Its gauges are zero while there is none.
func TestMetricsThatAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		reg := prometheus.NewPedanticRegistry()
		registry := promreg.NewRegistry(reg, "g")
		for i, name := range []string{"a", "b"} {
			info := fmt.Sprintf("kiel_member_info{member=%s,module_version=%s}", name, ownership.Version())
			a := w.owning(name, "t:0", memberOptions{Options: ownership.Options{Registerer: registry}})
			wantSeries(t, reg, map[string]float64{"kiel_owned_partitions{topic=t}": 1, "kiel_claims_total{result=ok}": float64(i + 1), info: 1, "kiel_ready{}": 1})
			a.quit()
			<-a.done
			wantSeries(t, reg, map[string]float64{"kiel_owned_partitions{topic=t}": 0, "kiel_claims_total{result=ok}": float64(i + 1), info: 0, "kiel_ready{}": 0})
			if ownership.IsShown(a.owner) {
				t.Error("the metrics hold an owner that has stopped")
			}
		}
		registry.Close()
		if got := series(t, reg); len(got) != 0 {
			t.Errorf("left behind: %v", got)
		}
	})
}

// A partition that is planned for a member and not claimed shows with the next listing of the claims, at every member, and grows
// older until it is claimed. One that a persistent znode blocks shows at once where it is planned.
func TestMetricsOfUnownedPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 10 * time.Second // of sessions
		w := newWorld(t)
		defer w.close()
		reg := prometheus.NewPedanticRegistry()
		unowned := func(count float64, from, to time.Duration) {
			t.Helper()
			wantSeries(t, reg, map[string]float64{"kiel_unowned_partitions{}": count})
			if age := series(t, reg)["kiel_oldest_unowned_partition_seconds{}"]; age < from.Seconds() || age > to.Seconds() {
				t.Errorf("the oldest is unowned for %v s, want %v to %v", age, from, to)
			}
		}
		a := w.owning("a", "t:0 t:1 t:2", memberOptions{Options: ownership.Options{Registerer: reg}})
		unowned(0, 0, 0)
		time.Sleep(3 * timeout)
		unowned(0, 0, 0)
		w.assign(map[string]string{"a": "t:0", "hangs": "t:1 t:2"})
		time.Sleep(timeout + time.Second)
		unowned(2, 0, timeout+time.Second)
		time.Sleep(time.Minute)
		unowned(2, time.Minute, time.Minute+timeout+time.Second)
		w.join("hangs", memberOptions{Options: ownership.Options{Accept: func(id kiel.Partition) error {
			if id.ID == 1 {
				return errors.New("not this one")
			}
			return nil
		}}})
		time.Sleep(timeout + time.Second)
		unowned(1, time.Minute+timeout, time.Minute+2*timeout+2*time.Second)

		a.client.BlackHole(zktest.Both)
		w.within(timeout, "trust ends", func() bool { return a.owned() == "" })
		time.Sleep(time.Second)
		unowned(0, 0, 0)
		a.client.Heal()
		a.owns(time.Minute, "t:0")
		time.Sleep(timeout + time.Second)
		unowned(1, time.Minute+timeout, time.Hour) // it still is the same one

		w.assign(map[string]string{"a": "t:0 t:1", "hangs": "t:2"})
		time.Sleep(timeout + time.Second)
		unowned(0, 0, 0)
	})
}

// A handler that does not return shows at once when its time is over. Its partition counts as not claimed while it is planned
// for this member.
func TestMetricsOfStuckHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		reg := prometheus.NewPedanticRegistry()
		free := make(chan struct{})
		w.owning("a", "t:0", memberOptions{
			Options: ownership.Options{Registerer: reg, RebalanceTimeout: 5 * time.Second},
			handler: func(ctx context.Context, _ *ownership.Claim) error {
				<-ctx.Done()
				<-free
				return nil
			},
		})
		b := w.join("b", memberOptions{})
		stuck := func(handlers, unclaimed float64) {
			t.Helper()
			wantSeries(t, reg, map[string]float64{"kiel_stuck_handlers{}": handlers, "kiel_unclaimable_partitions{reason=stuck}": unclaimed})
		}
		w.assign(map[string]string{"b": "t:0"})
		time.Sleep(5*time.Second - time.Millisecond)
		stuck(0, 0)
		time.Sleep(2 * time.Millisecond)
		stuck(1, 0)
		b.owns(time.Second, "t:0")
		w.assign(map[string]string{"a": "t:0"})
		time.Sleep(time.Millisecond)
		stuck(1, 1)
		close(free)
		time.Sleep(time.Millisecond)
		stuck(0, 0)
	})
}
