package ownership_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/promreg"
	"github.com/kielgo/kiel/internal/testonly/promtest"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/zktest"
)

// lasting is a registry that loses nothing, for what an owner has counted before it ended.
type lasting struct{ *prometheus.Registry }

func (lasting) Unregister(prometheus.Collector) bool { return true }

func TestMetrics(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		reg := prometheus.NewPedanticRegistry()
		w.owning("a", "t:0 t:1 u:0", memberOptions{Options: ownership.Options{Registerer: reg, RebalanceTimeout: 5 * time.Second}, drain: time.Minute})
		b := w.join("b", memberOptions{})
		time.Sleep(time.Second)
		w.assign(map[string]string{"a": "t:0", "b": "t:1 u:0"})
		b.owns(6*time.Second, "t:1 u:0")
		promtest.Families(t, reg, "kiel_claims_total result=conflict:0 result=error:0 result=ok:3 result=unknown:0", "kiel_drain_timeouts_total 2",
			"kiel_owned_partitions topic=t:1", "kiel_partitions_moved_total direction=claimed:3 direction=lost:2 direction=revoked:0",
			"kiel_rebalance_errors_total stage=claim:0 stage=handler:0 stage=revoke:2")
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

// A topic's gauge is there from the plan on that gives the member some of it, also while it owns none, until a plan gives it
// none and all is released. Nothing vanishes when trust ends.
func TestMetricsWithoutTrust(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		reg := prometheus.NewPedanticRegistry()
		a := w.owning("a", "t:0 t:1 u:0", memberOptions{Options: ownership.Options{Registerer: reg}, drain: 3 * time.Second})
		before := len(promtest.Values(t, reg))
		a.client.BlackHole(zktest.Both)
		w.within(10*time.Second, "trust ends", func() bool { return a.owned() == "" })
		promtest.Has(t, reg, map[string]float64{
			"kiel_owned_partitions{topic=t}": 0, "kiel_owned_partitions{topic=u}": 0, "kiel_partitions_moved_total{direction=lost}": 3,
		})
		if n := len(promtest.Values(t, reg)); n != before {
			t.Errorf("%d series without trust, %d before", n, before)
		}
		a.client.Heal()
		a.owns(time.Minute, "t:0 t:1 u:0")

		w.assign(map[string]string{"a": "t:0", "b": "t:1 u:0"})
		time.Sleep(time.Second)
		promtest.Has(t, reg, map[string]float64{"kiel_owned_partitions{topic=t}": 2, "kiel_owned_partitions{topic=u}": 1}) // drains
		time.Sleep(3 * time.Second)
		promtest.Has(t, reg, map[string]float64{"kiel_owned_partitions{topic=t}": 1})
		if n := len(promtest.Values(t, reg)); n != before-1 {
			t.Errorf("%d series without topic u, %d before", n, before)
		}
	})
}

// While one owner of a group lives another on the same registerer fails and says what to do; afterwards it does not.
func TestMetricsOfTwoOwners(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		reg := prometheus.NewPedanticRegistry()
		a := w.owning("a", "t:0", memberOptions{Options: ownership.Options{Registerer: reg}})
		b := w.join("b", memberOptions{Options: ownership.Options{Registerer: reg}})
		<-b.done
		if b.err == nil || !strings.Contains(b.err.Error(), "WrapRegistererWith") {
			t.Errorf("two owners on one registerer: %v", b.err)
		}
		promtest.Has(t, reg, map[string]float64{"kiel_owned_partitions{topic=t}": 1})
		a.quit()
		<-a.done
		if got := promtest.Values(t, reg); len(got) != 0 {
			t.Errorf("left behind: %v", got)
		}
		w.owning("c", "t:0", memberOptions{Options: ownership.Options{Registerer: reg}})
		promtest.Has(t, reg, map[string]float64{"kiel_owned_partitions{topic=t}": 1, "kiel_claims_total{result=ok}": 1})
	})
}

// A Registry's counters go on in the next owner. Its gauges are zero while there is none.
func TestMetricsThatAreKept(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		reg := prometheus.NewPedanticRegistry()
		registry := promreg.NewRegistry(reg, "g")
		for i, name := range []string{"a", "b"} {
			info := fmt.Sprintf("kiel_member_info{member=%s,module_version=%s}", name, ownership.Version())
			a := w.owning(name, "t:0", memberOptions{Options: ownership.Options{Registerer: registry}})
			promtest.Has(t, reg, map[string]float64{"kiel_owned_partitions{topic=t}": 1, "kiel_claims_total{result=ok}": float64(i + 1), info: 1, "kiel_ready{}": 1})
			a.quit()
			<-a.done
			promtest.Has(t, reg, map[string]float64{"kiel_owned_partitions{topic=t}": 0, "kiel_claims_total{result=ok}": float64(i + 1), info: 0, "kiel_ready{}": 0})
			if ownership.IsShown(a.owner) {
				t.Error("the metrics hold an owner that has stopped")
			}
		}
		registry.Close()
		if got := promtest.Values(t, reg); len(got) != 0 {
			t.Errorf("left behind: %v", got)
		}
	})
}

// A partition that is planned for a member and not claimed shows with the next listing of the claims, at every member, and grows
// older until it is claimed. One that a persistent znode blocks shows at once where it is planned.
func TestMetricsOfUnownedPartitions(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const timeout = 10 * time.Second // of sessions
		reg := prometheus.NewPedanticRegistry()
		unowned := func(count float64, from, to time.Duration) {
			t.Helper()
			promtest.Has(t, reg, map[string]float64{"kiel_unowned_partitions{}": count})
			if age := promtest.Values(t, reg)["kiel_oldest_unowned_partition_seconds{}"]; age < from.Seconds() || age > to.Seconds() {
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
