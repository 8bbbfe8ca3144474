package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/allocfn"
)

// scrape fails unless the named metrics are as in want.
func scrape(t *testing.T, reg *prometheus.Registry, want string, names ...string) {
	t.Helper()
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

// value returns what a metric of one series says.
func value(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no %s", name)
	return 0
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		reg := prometheus.NewRegistry()
		w.put(partitions, `["t:0", "t:1", "t:2", "t:3"]`) // or it would depend on who reads first whether the seed is a rebalance
		a := w.start("a", allocator.Options{Registerer: reg})
		a.ready()
		sleep(time.Minute)
		atFirst := value(t, reg, "kiel_rebalance_events_coalesced_total") // so may be that we came
		if err := a.AddPartitions(t.Context(), map[string][]int32{"u": {0}}); err != nil {
			t.Fatal(err)
		}
		sleep(time.Minute)
		w.start("b", allocator.Options{}).ready()
		sleep(time.Minute)
		for _, python := range []string{"p1", "p2", "p3"} { // the first is acted on at once, then two together
			if err := w.srv.Create(members+"/"+python, nil); err != nil {
				t.Fatal(err)
			}
			sleep(50 * time.Millisecond)
		}
		sleep(time.Minute)
		if err := a.SetZones(t.Context(), map[allocfn.Partition]string{{Topic: "t"}: "x", {Topic: "v"}: "y"}); err != nil {
			t.Error(err)
		}
		sleep(settle)
		a.kill()
		sleep(settle)
		if err := a.Rebalance(t.Context()); err != nil {
			t.Error(err)
		}
		if err := w.srv.Create(members+"/d", []byte(`{"v":1,"functions":["other"]}`)); err != nil {
			t.Fatal(err)
		}
		sleep(settle)
		scrape(t, reg, `
# HELP kiel_assigned_partitions Partitions that the mapping gives to this member.
# TYPE kiel_assigned_partitions gauge
kiel_assigned_partitions{group="g",topic="t"} 1
# HELP kiel_last_rebalance_timestamp_seconds When a mapping was applied last, in seconds since 1970.
# TYPE kiel_last_rebalance_timestamp_seconds gauge
kiel_last_rebalance_timestamp_seconds{group="g"} 9.4668505015e+08
# HELP kiel_members Members of the group, as last read.
# TYPE kiel_members gauge
kiel_members{group="g"} 6
# HELP kiel_partitions Items of the shared set, as last read.
# TYPE kiel_partitions gauge
kiel_partitions{group="g"} 5
# HELP kiel_rebalance_in_progress 1 while a change waits to be acted on, or a mapping is computed.
# TYPE kiel_rebalance_in_progress gauge
kiel_rebalance_in_progress{group="g"} 0
# HELP kiel_rebalances_failed_total Rebalances that failed, by stage.
# TYPE kiel_rebalances_failed_total counter
kiel_rebalances_failed_total{group="g",stage="callback"} 0
kiel_rebalances_failed_total{group="g",stage="compute"} 1
# HELP kiel_rebalances_total Mappings that were computed and applied, by what changed.
# TYPE kiel_rebalances_total counter
kiel_rebalances_total{group="g",trigger="initial"} 1
kiel_rebalances_total{group="g",trigger="manual"} 1
kiel_rebalances_total{group="g",trigger="members"} 3
kiel_rebalances_total{group="g",trigger="partitions"} 1
kiel_rebalances_total{group="g",trigger="session"} 1
kiel_rebalances_total{group="g",trigger="zones"} 1
# HELP kiel_zk_reconnects_total Times that a connection to ZooKeeper was made again.
# TYPE kiel_zk_reconnects_total counter
kiel_zk_reconnects_total{group="g"} 0
# HELP kiel_zk_session_expirations_total ZooKeeper sessions that expired.
# TYPE kiel_zk_session_expirations_total counter
kiel_zk_session_expirations_total{group="g"} 1
# HELP kiel_zk_session_state 1 for the state that the ZooKeeper session is in.
# TYPE kiel_zk_session_state gauge
kiel_zk_session_state{group="g",state="closed"} 0
kiel_zk_session_state{group="g",state="connected"} 1
kiel_zk_session_state{group="g",state="connecting"} 0
kiel_zk_session_state{group="g",state="lost"} 0
kiel_zk_session_state{group="g",state="suspended"} 0
# HELP kiel_zoned_partitions Partitions that have a zone, in the set or not, as last read.
# TYPE kiel_zoned_partitions gauge
kiel_zoned_partitions{group="g"} 2
`,
			"kiel_assigned_partitions", "kiel_last_rebalance_timestamp_seconds", "kiel_members", "kiel_partitions",
			"kiel_rebalance_in_progress", "kiel_rebalances_failed_total", "kiel_rebalances_total",
			"kiel_zk_reconnects_total", "kiel_zk_session_expirations_total", "kiel_zk_session_state", "kiel_zoned_partitions")
		if n := value(t, reg, "kiel_rebalance_events_coalesced_total") - atFirst; n != 1 {
			t.Errorf("%v changes coalesced", n)
		}
		for _, name := range []string{"kiel_rebalance_duration_seconds", "kiel_assignment_compute_seconds", "kiel_view_age_seconds", "kiel_sharedset_updates_total"} {
			if n, err := testutil.GatherAndCount(reg, name); n == 0 || err != nil {
				t.Errorf("%s: %d, %v", name, n, err)
			}
		}
		if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
			t.Error(problems, err)
		}
		if err := a.end(); err != nil {
			t.Error(err)
		}
		// What is a state is gone, what was counted stays.
		for name, want := range map[string]int{
			"kiel_assigned_partitions": 0, "kiel_members": 0, "kiel_partitions": 0, "kiel_rebalance_in_progress": 0,
			"kiel_unwanted_partitions": 0, "kiel_view_age_seconds": 0, "kiel_zk_session_state": 0, "kiel_zoned_partitions": 0, "kiel_rebalances_total": 6,
		} {
			if n, err := testutil.GatherAndCount(reg, name); n != want || err != nil {
				t.Errorf("%s after the end: %d, %v", name, n, err)
			}
		}
		// The next one on the same registry goes on.
		if err := w.srv.Delete(members + "/d"); err != nil {
			t.Fatal(err)
		}
		w.start("a", allocator.Options{Registerer: reg}).ready()
		if n, err := testutil.GatherAndCount(reg, "kiel_members", "kiel_rebalances_total"); n != 1+6 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// Partitions of topics that no member asks for are counted in the set, and not among those that anybody has.
func TestMetricsOfUnwantedTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put(partitions, `["t:0", "t:1", "t:2", "u:0", "u:1"]`)
		var regs []*prometheus.Registry
		var nodes []*node
		for _, name := range []string{"a", "b"} {
			regs = append(regs, prometheus.NewRegistry())
			nodes = append(nodes, w.start(name, allocator.Options{Registerer: regs[len(regs)-1], Topics: []string{"t", name}}))
		}
		shown := func(unwanted int, shares ...string) {
			t.Helper()
			sleep(time.Minute)
			for i, share := range shares {
				scrape(t, regs[i], fmt.Sprintf(`
# HELP kiel_assigned_partitions Partitions that the mapping gives to this member.
# TYPE kiel_assigned_partitions gauge
%s
# HELP kiel_partitions Items of the shared set, as last read.
# TYPE kiel_partitions gauge
kiel_partitions{group="g"} 5
# HELP kiel_unwanted_partitions Partitions of topics that no member asks for, which the mapping leaves out.
# TYPE kiel_unwanted_partitions gauge
kiel_unwanted_partitions{group="g"} %d
`, share, unwanted), "kiel_assigned_partitions", "kiel_partitions", "kiel_unwanted_partitions")
			}
		}
		shown(2, `kiel_assigned_partitions{group="g",topic="t"} 2`, `kiel_assigned_partitions{group="g",topic="t"} 1`)
		for _, n := range nodes {
			if s := n.Snapshot(); s.Err != nil || len(s.Partitions) != 3 || fmt.Sprint(s.Unwanted) != "[u]" {
				t.Errorf("%s: %d partitions, unwanted %v, error %v", n.Name(), len(s.Partitions), s.Unwanted, s.Err)
			}
			if err := n.failed(); !errors.Is(err, allocator.ErrUnwantedTopic) || !strings.Contains(err.Error(), `: "u"; RemoveTopic removes`) {
				t.Errorf("%s: reported %v", n.Name(), err)
			}
		}
		// Beside a member in Python all are divided, as it does.
		w.put(members+"/c", "")
		shown(0, `kiel_assigned_partitions{group="g",topic="t"} 1
kiel_assigned_partitions{group="g",topic="u"} 1`, `kiel_assigned_partitions{group="g",topic="t"} 1
kiel_assigned_partitions{group="g",topic="u"} 1`)
		for _, n := range nodes {
			if err := n.failed(); err != nil {
				t.Errorf("%s: reported %v", n.Name(), err)
			}
		}
	})
}

func TestMetricsOfCallbacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		reg := prometheus.NewRegistry()
		if err := w.srv.Create(partitions, []byte(`["t:0"]`)); err != nil {
			t.Fatal(err)
		}
		a := w.start("a", allocator.Options{
			Registerer:  reg,
			OnRebalance: func(context.Context, allocator.Rebalance) { panic("ouch") },
		})
		a.ready()
		sleep(time.Second)
		scrape(t, reg, `
# HELP kiel_rebalances_failed_total Rebalances that failed, by stage.
# TYPE kiel_rebalances_failed_total counter
kiel_rebalances_failed_total{group="g",stage="callback"} 1
kiel_rebalances_failed_total{group="g",stage="compute"} 0
`, "kiel_rebalances_failed_total")
		if err := a.failed(); !errors.Is(err, allocator.ErrCallback) {
			t.Error(err)
		}
	})
}

func TestMetricsThatCanNotBeRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		n := w.make("a", allocator.Options{})
		reg := prometheus.NewRegistry()
		reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "kiel_members", Help: "Another.", ConstLabels: prometheus.Labels{"group": group}}))
		if _, err := allocator.New(n.session, group, "a", allocator.Options{Registerer: reg}); err == nil {
			t.Error("no error")
		}
		if _, err := allocator.New(n.session, "h", "a", allocator.Options{Func: allocfn.Range()}); err != nil {
			t.Error(err)
		}
	})
}
