package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/promreg"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
)

// scrape fails unless the named metrics are as in want.
func scrape(t recipetest.TB, reg *prometheus.Registry, want string, names ...string) {
	t.Helper()
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

// value returns what a metric of one series says.
func value(t recipetest.TB, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() // it is one of them
		}
	}
	t.Fatalf("no %s", name)
	return 0
}

func TestMetrics(t *testing.T) {
	inWorld(t, func(w *world) {
		reg := prometheus.NewRegistry()
		w.put(partitions, `["t:0", "t:1", "t:2", "t:3"]`) // or it would depend on who reads first whether the seed is a rebalance
		a := w.start("a", allocator.Options{Registerer: reg})
		a.ready()
		sleep(time.Minute)
		atFirst := value(w, reg, "kiel_rebalance_events_coalesced_total") // so may be that we came
		if err := a.AddPartitions(w.Context(), map[string][]int32{"u": {0}}); err != nil {
			w.Fatal(err)
		}
		sleep(time.Minute)
		w.start("b", allocator.Options{}).ready()
		sleep(time.Minute)
		for _, python := range []string{"p1", "p2", "p3"} { // the first is acted on at once, then two together
			if err := w.srv.Create(members+"/"+python, nil); err != nil {
				w.Fatal(err)
			}
			sleep(50 * time.Millisecond)
		}
		sleep(time.Minute)
		if err := a.SetZones(w.Context(), map[kiel.Partition]string{{Topic: "t"}: "x", {Topic: "v"}: "y"}); err != nil {
			w.Error(err)
		}
		sleep(settle)
		a.kill()
		sleep(settle)
		if err := a.Rebalance(w.Context()); err != nil {
			w.Error(err)
		}
		if err := w.srv.Create(members+"/d", []byte(`{"v":1,"functions":["other"]}`)); err != nil {
			w.Fatal(err)
		}
		sleep(settle)
		scrape(w, reg, `
# HELP kiel_planned_partitions Partitions that the mapping gives to this member.
# TYPE kiel_planned_partitions gauge
kiel_planned_partitions{group="g",topic="t"} 1
# HELP kiel_last_rebalance_timestamp_seconds When a mapping was applied last, in seconds since 1970; 0 before the first.
# TYPE kiel_last_rebalance_timestamp_seconds gauge
kiel_last_rebalance_timestamp_seconds{group="g"} 9.4668505015e+08
# HELP kiel_members Members of the group, as last read.
# TYPE kiel_members gauge
kiel_members{group="g"} 6
# HELP kiel_set_items Items of the shared set, as last read.
# TYPE kiel_set_items gauge
kiel_set_items{group="g"} 5
# HELP kiel_rebalance_in_progress 1 while a change waits to be acted on, or a mapping is computed.
# TYPE kiel_rebalance_in_progress gauge
kiel_rebalance_in_progress{group="g"} 0
# HELP kiel_rebalance_errors_total Errors in rebalances, by stage; callback is one of the allocator, handler a handler or callback of the owner.
# TYPE kiel_rebalance_errors_total counter
kiel_rebalance_errors_total{group="g",stage="callback"} 0
kiel_rebalance_errors_total{group="g",stage="compute"} 1
# HELP kiel_rebalances_total Mappings that were computed and applied, by the cause of their reason.
# TYPE kiel_rebalances_total counter
kiel_rebalances_total{cause="initial",group="g"} 1
kiel_rebalances_total{cause="manual",group="g"} 1
kiel_rebalances_total{cause="members",group="g"} 3
kiel_rebalances_total{cause="partitions",group="g"} 1
kiel_rebalances_total{cause="session",group="g"} 1
kiel_rebalances_total{cause="zones",group="g"} 1
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
			"kiel_planned_partitions", "kiel_last_rebalance_timestamp_seconds", "kiel_members", "kiel_set_items",
			"kiel_rebalance_in_progress", "kiel_rebalance_errors_total", "kiel_rebalances_total",
			"kiel_zk_reconnects_total", "kiel_zk_session_expirations_total", "kiel_zk_session_state", "kiel_zoned_partitions")
		if n := value(w, reg, "kiel_rebalance_events_coalesced_total") - atFirst; n != 1 {
			w.Errorf("%v changes coalesced", n)
		}
		for _, name := range []string{"kiel_rebalance_duration_seconds", "kiel_assignment_compute_seconds", "kiel_view_age_seconds", "kiel_sharedset_updates_total"} {
			if n, err := testutil.GatherAndCount(reg, name); n == 0 || err != nil {
				w.Errorf("%s: %d, %v", name, n, err)
			}
		}
		if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
			w.Error(problems, err)
		}
		if err := a.end(); err != nil {
			w.Error(err)
		}
		if n, err := testutil.GatherAndCount(reg); n != 0 || err != nil {
			w.Errorf("%d series after the end, %v", n, err)
		}
	})
}

// While one member lives another one in the same registerer fails, and says what to do; afterwards it does not.
func TestMetricsOfTwoMembers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(partitions, `["t:0"]`)
		reg := prometheus.NewPedanticRegistry()
		a := w.start("a", allocator.Options{Registerer: reg})
		a.ready()
		b := w.make("b", allocator.Options{Registerer: reg})
		err := b.Run(w.Context())
		if err == nil || !strings.Contains(err.Error(), "WrapRegistererWith") {
			w.Errorf("two members in one registerer: %v", err)
		}
		if err := b.Ready(w.Context()); !errors.Is(err, allocator.ErrStopped) {
			w.Error(err)
		}
		scrape(w, reg, `
# HELP kiel_members Members of the group, as last read.
# TYPE kiel_members gauge
kiel_members{group="g"} 1
`, "kiel_members")
		if err := a.end(); err != nil {
			w.Error(err)
		}
		w.start("c", allocator.Options{Registerer: reg}).ready()
		w.start("d", allocator.Options{Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"client": "d"}, prometheus.NewRegistry())}).ready()
		if n, err := testutil.GatherAndCount(reg, "kiel_members", "kiel_rebalances_total"); n != 1+6 || err != nil {
			w.Errorf("%d, %v", n, err)
		}
	})
}

// A member without trust in its session shows that it has nothing, and all that it showed before.
func TestMetricsWithoutTrust(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(partitions, `["t:0", "u:0"]`)
		reg := prometheus.NewPedanticRegistry()
		a := w.start("a", allocator.Options{Registerer: reg})
		a.ready()
		sleep(settle)
		before, err := testutil.GatherAndCount(reg)
		if err != nil {
			w.Fatal(err)
		}
		a.client.Refuse()
		a.client.Cut()
		sleep(2 * timeout)
		scrape(w, reg, `
# HELP kiel_planned_partitions Partitions that the mapping gives to this member.
# TYPE kiel_planned_partitions gauge
kiel_planned_partitions{group="g",topic="t"} 0
kiel_planned_partitions{group="g",topic="u"} 0
# HELP kiel_zk_trust_remaining_seconds Time until trust in the session ends unless a proof of life is answered, in seconds; 0 when it has ended.
# TYPE kiel_zk_trust_remaining_seconds gauge
kiel_zk_trust_remaining_seconds{group="g"} 0
`, "kiel_planned_partitions", "kiel_zk_trust_remaining_seconds")
		if n, err := testutil.GatherAndCount(reg); n != before || err != nil {
			w.Errorf("%d series, %d before; %v", n, before, err)
		}
		a.client.Heal()
		w.put(partitions, `["t:0"]`)
		sleep(time.Minute)
		scrape(w, reg, `
# HELP kiel_planned_partitions Partitions that the mapping gives to this member.
# TYPE kiel_planned_partitions gauge
kiel_planned_partitions{group="g",topic="t"} 1
`, "kiel_planned_partitions")
	})
}

// A Registry's counters go on in the next allocator, and its gauges are there, and zero, while there is none.
func TestMetricsThatAreKept(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(partitions, `["t:0"]`)
		reg := prometheus.NewPedanticRegistry()
		registry := promreg.NewRegistry(reg, group)
		defer registry.Close()
		shown := func(members, rebalances int, assigned string) {
			w.Helper()
			scrape(w, reg, fmt.Sprintf(`
%s# HELP kiel_members Members of the group, as last read.
# TYPE kiel_members gauge
kiel_members{group="g"} %d
# HELP kiel_rebalances_total Mappings that were computed and applied, by the cause of their reason.
# TYPE kiel_rebalances_total counter
kiel_rebalances_total{cause="initial",group="g"} %d
kiel_rebalances_total{cause="manual",group="g"} 0
kiel_rebalances_total{cause="members",group="g"} 0
kiel_rebalances_total{cause="partitions",group="g"} 0
kiel_rebalances_total{cause="session",group="g"} 0
kiel_rebalances_total{cause="zones",group="g"} 0
`, assigned, members, rebalances), "kiel_planned_partitions", "kiel_members", "kiel_rebalances_total")
		}
		has := func(n int) string {
			return fmt.Sprintf(`# HELP kiel_planned_partitions Partitions that the mapping gives to this member.
# TYPE kiel_planned_partitions gauge
kiel_planned_partitions{group="g",topic="t"} %d
`, n)
		}
		w.make("a", allocator.Options{Registerer: registry})
		shown(0, 0, "")
		for i := range 2 {
			a := w.start("a", allocator.Options{Registerer: registry})
			a.ready()
			sleep(settle)
			shown(1, i+1, has(1))
			if err := a.end(); err != nil {
				w.Error(err)
			}
			sleep(settle)
			shown(0, i+1, has(0))
		}
		registry.Close()
		if n, err := testutil.GatherAndCount(reg); n != 0 || err != nil {
			w.Errorf("%d series after Close, %v", n, err)
		}
	})
}

// Partitions of topics that no member asks for are counted in the set, and not among those that anybody has.
func TestMetricsOfUnwantedTopics(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(partitions, `["t:0", "t:1", "t:2", "u:0", "u:1"]`)
		var regs []*prometheus.Registry
		var nodes []*node
		for _, name := range []string{"a", "b"} {
			regs = append(regs, prometheus.NewRegistry())
			nodes = append(nodes, w.start(name, allocator.Options{Registerer: regs[len(regs)-1], Topics: []string{"t", name}}))
		}
		shown := func(unwanted int, shares ...string) {
			w.Helper()
			sleep(time.Minute)
			for i, share := range shares {
				scrape(w, regs[i], fmt.Sprintf(`
# HELP kiel_planned_partitions Partitions that the mapping gives to this member.
# TYPE kiel_planned_partitions gauge
%s
# HELP kiel_set_items Items of the shared set, as last read.
# TYPE kiel_set_items gauge
kiel_set_items{group="g"} 5
# HELP kiel_unwanted_partitions Partitions of topics that no member asks for, which the mapping leaves out.
# TYPE kiel_unwanted_partitions gauge
kiel_unwanted_partitions{group="g"} %d
`, share, unwanted), "kiel_planned_partitions", "kiel_set_items", "kiel_unwanted_partitions")
			}
		}
		shown(2, `kiel_planned_partitions{group="g",topic="t"} 2`, `kiel_planned_partitions{group="g",topic="t"} 1`)
		for _, n := range nodes {
			if s := n.Snapshot(); s.Err != nil || len(s.Partitions) != 3 || fmt.Sprint(s.Unwanted) != "[u]" {
				w.Errorf("%s: %d partitions, unwanted %v, error %v", n.Member(), len(s.Partitions), s.Unwanted, s.Err)
			}
			if err := n.failed(); !errors.Is(err, allocator.ErrUnwantedTopic) || !strings.Contains(err.Error(), `: "u"; RemoveTopic removes`) {
				w.Errorf("%s: reported %v", n.Member(), err)
			}
		}
		// Beside a member in Python all are divided, as it does.
		w.put(members+"/c", "")
		shown(0, `kiel_planned_partitions{group="g",topic="t"} 1
kiel_planned_partitions{group="g",topic="u"} 1`, `kiel_planned_partitions{group="g",topic="t"} 1
kiel_planned_partitions{group="g",topic="u"} 1`)
		for _, n := range nodes {
			if err := n.failed(); err != nil {
				w.Errorf("%s: reported %v", n.Member(), err)
			}
		}
	})
}

func TestMetricsOfCallbacks(t *testing.T) {
	inWorld(t, func(w *world) {
		reg := prometheus.NewRegistry()
		if err := w.srv.Create(partitions, []byte(`["t:0"]`)); err != nil {
			w.Fatal(err)
		}
		a := w.start("a", allocator.Options{
			Registerer:  reg,
			OnRebalance: func(context.Context, allocator.Rebalance) { panic("ouch") },
		})
		a.ready()
		sleep(time.Second)
		scrape(w, reg, `
# HELP kiel_rebalance_errors_total Errors in rebalances, by stage; callback is one of the allocator, handler a handler or callback of the owner.
# TYPE kiel_rebalance_errors_total counter
kiel_rebalance_errors_total{group="g",stage="callback"} 1
kiel_rebalance_errors_total{group="g",stage="compute"} 0
`, "kiel_rebalance_errors_total")
		if err := a.failed(); !errors.Is(err, allocator.ErrCallback) {
			w.Error(err)
		}
	})
}

func TestMetricsThatCanNotBeRegistered(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.make("a", allocator.Options{})
		reg := prometheus.NewRegistry()
		reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "kiel_members", Help: "Another.", ConstLabels: prometheus.Labels{"group": group}}))
		a, err := allocator.New(n.session, group, "a", allocator.Options{Registerer: reg})
		if err != nil {
			w.Fatal(err)
		}
		if err := a.Run(w.Context()); err == nil {
			w.Error("no error")
		}
		if _, err := allocator.New(n.session, "h", "a", allocator.Options{Func: allocfn.Range()}); err != nil {
			w.Error(err)
		}
	})
}

// kiel_disagreements counts what members disagree about, by the kinds that the status lists.
func TestMetricsOfDisagreements(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(partitions, `["t:0", "t:1", "t:2", "u:0"]`)
		reg := prometheus.NewRegistry()
		a := w.start("a", allocator.Options{Registerer: reg, Topics: []string{"t"}})
		a.ready()
		shown := func(counts ...int) {
			w.Helper()
			sleep(time.Minute)
			var want strings.Builder
			want.WriteString("# HELP kiel_disagreements Members, topics or items, as last read, that keep the group from acting as one, by the kind of " +
				"disagreement that /status lists; 1 where the kind is about a znode.\n# TYPE kiel_disagreements gauge\n")
			for i, kind := range []string{
				"no-common-function", "odd-item", "other-cluster", "persistent-member", "unwanted-topic", "topics-ignored", "unreadable-record", "unreadable-set", "unreadable-zones",
			} {
				fmt.Fprintf(&want, "kiel_disagreements{group=\"g\",kind=%q} %d\n", kind, counts[i])
			}
			scrape(w, reg, want.String(), "kiel_disagreements")
			listed := make(map[string]int)
			for _, d := range a.Status().Disagreements {
				listed[string(d.Kind)]++
			}
			if shown := slices.DeleteFunc(slices.Clone(counts), func(n int) bool { return n == 0 }); len(shown) != len(listed) {
				w.Errorf("the status lists %v", listed)
			}
		}
		shown(0, 0, 0, 0, 1, 0, 0, 0, 0)
		for _, name := range []string{"ghost", "ghost2"} {
			if err := w.srv.Create(members+"/"+name, nil); err != nil {
				w.Fatal(err)
			}
		}
		shown(0, 0, 0, 2, 0, 2, 0, 0, 0)
		if err := w.srv.Set(members+"/ghost", []byte(`{"v":1,"functions":["other"]`)); err != nil {
			w.Fatal(err)
		}
		if err := w.srv.Delete(members + "/ghost2"); err != nil {
			w.Fatal(err)
		}
		if err := w.srv.Create(members+"/strange", []byte(`{"v":1,"functions":["other"]}`)); err != nil {
			w.Fatal(err)
		}
		if err := w.srv.Set("/kiel/groups/g/partitions", []byte(`["t:0", "t:x"]`)); err != nil {
			w.Fatal(err)
		}
		shown(1, 1, 0, 2, 0, 1, 1, 0, 0)
		if err := w.srv.Set("/kiel/groups/g/partitions", []byte(`no set`)); err != nil {
			w.Fatal(err)
		}
		if err := w.srv.Create("/kiel/groups/g/zones", []byte(`no zones`)); err != nil {
			w.Fatal(err)
		}
		shown(1, 1, 0, 2, 0, 1, 1, 1, 1)
		if err := a.end(); err != nil {
			w.Error(err)
		}
	})
}
