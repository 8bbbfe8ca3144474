package allocator_test

import (
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
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/promtest"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
)

// value returns what a metric of one series says.
func value(t recipetest.TB, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	v, ok := promtest.Values(t, reg)[name+"{}"]
	if !ok {
		t.Fatalf("no %s", name)
	}
	return v
}

func TestMetrics(t *testing.T) {
	inWorld(t, func(w *world) {
		reg := prometheus.NewRegistry()
		w.put(partitions, `["t:0", "t:1", "t:2", "t:3"]`) // or it would depend on who reads first whether the seed is a rebalance
		a := w.start("a", allocator.Options{Registerer: reg})
		a.ready()
		sleep(time.Minute)
		atFirst := value(w, reg, "kiel_rebalance_events_coalesced_total") // so may be that we came
		noerr.Must(w, a.AddPartitions(w.Context(), map[string][]int32{"u": {0}}))
		sleep(time.Minute)
		w.start("b", allocator.Options{}).ready()
		sleep(time.Minute)
		for _, python := range []string{"p1", "p2", "p3"} { // the first is acted on at once, then two together
			noerr.Must(w, w.srv.Create(members+"/"+python, nil))
			sleep(50 * time.Millisecond)
		}
		sleep(time.Minute)
		noerr.Want(w, a.SetZones(w.Context(), map[kiel.Partition]string{{Topic: "t"}: "x", {Topic: "v"}: "y"}))
		sleep(settle)
		a.kill()
		sleep(settle)
		noerr.Want(w, a.Rebalance(w.Context()))
		noerr.Must(w, w.srv.Create(members+"/d", []byte(`{"v":1,"functions":["other"]}`)))
		sleep(settle)
		promtest.Families(w, reg,
			"kiel_last_rebalance_timestamp_seconds 9.4668505015e+08",
			"kiel_members 6",
			"kiel_planned_partitions topic=t:1",
			"kiel_rebalance_errors_total stage=callback:0 stage=compute:1",
			"kiel_rebalance_in_progress 0",
			"kiel_rebalances_total cause=initial:1 cause=manual:1 cause=members:3 cause=partitions:1 cause=session:1 cause=zones:1",
			"kiel_set_items 5",
			"kiel_zk_reconnects_total 0",
			"kiel_zk_session_expirations_total 1",
			"kiel_zk_session_state state=closed:0 state=connected:1 state=connecting:0 state=lost:0 state=suspended:0",
			"kiel_zoned_partitions 2",
		)
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
		noerr.Want(w, a.end())
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
		promtest.Families(w, reg, "kiel_members 1")
		noerr.Want(w, a.end())
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
		noerr.Must(w, err)
		a.client.Refuse()
		a.client.Cut()
		sleep(2 * timeout)
		promtest.Families(w, reg, "kiel_planned_partitions topic=t:0 topic=u:0", "kiel_zk_trust_remaining_seconds 0")
		if n, err := testutil.GatherAndCount(reg); n != before || err != nil {
			w.Errorf("%d series, %d before; %v", n, before, err)
		}
		a.client.Heal()
		w.put(partitions, `["t:0"]`)
		sleep(time.Minute)
		promtest.Families(w, reg, "kiel_planned_partitions topic=t:1")
	})
}

// A Registry's counters go on in the next allocator, and its gauges are there, and zero, while there is none.
func TestMetricsThatAreKept(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(partitions, `["t:0"]`)
		reg := prometheus.NewPedanticRegistry()
		registry := promreg.NewRegistry(reg, group)
		defer registry.Close()
		shown := func(members, rebalances int, planned string) {
			w.Helper()
			promtest.Families(w, reg, "kiel_planned_partitions "+planned, fmt.Sprint("kiel_members ", members),
				fmt.Sprintf("kiel_rebalances_total cause=initial:%d cause=manual:0 cause=members:0 cause=partitions:0 cause=session:0 cause=zones:0", rebalances))
		}
		w.make("a", allocator.Options{Registerer: registry})
		shown(0, 0, "")
		for i := range 2 {
			a := w.start("a", allocator.Options{Registerer: registry})
			a.ready()
			sleep(settle)
			shown(1, i+1, "topic=t:1")
			noerr.Want(w, a.end())
			sleep(settle)
			shown(0, i+1, "topic=t:0")
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
				promtest.Families(w, regs[i], "kiel_planned_partitions "+share, "kiel_set_items 5", fmt.Sprint("kiel_unwanted_partitions ", unwanted))
			}
		}
		shown(2, "topic=t:2", "topic=t:1")
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
		shown(0, "topic=t:1 topic=u:1", "topic=t:1 topic=u:1")
		for _, n := range nodes {
			if err := n.failed(); err != nil {
				w.Errorf("%s: reported %v", n.Member(), err)
			}
		}
	})
}

func TestMetricsThatCanNotBeRegistered(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.make("a", allocator.Options{})
		reg := prometheus.NewRegistry()
		reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "kiel_members", Help: "Another.", ConstLabels: prometheus.Labels{"group": group}}))
		a, err := allocator.New(n.session, group, "a", allocator.Options{Registerer: reg})
		noerr.Must(w, err)
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
			want := "kiel_disagreements"
			for i, kind := range []string{
				"no-common-function", "odd-item", "other-cluster", "persistent-member", "unwanted-topic", "topics-ignored", "unreadable-record", "unreadable-set", "unreadable-zones",
			} {
				want += fmt.Sprintf(" kind=%s:%d", kind, counts[i])
			}
			promtest.Families(w, reg, want)
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
			noerr.Must(w, w.srv.Create(members+"/"+name, nil))
		}
		shown(0, 0, 0, 2, 0, 2, 0, 0, 0)
		noerr.Must(w, w.srv.Set(members+"/ghost", []byte(`{"v":1,"functions":["other"]`)))
		noerr.Must(w, w.srv.Delete(members+"/ghost2"))
		noerr.Must(w, w.srv.Create(members+"/strange", []byte(`{"v":1,"functions":["other"]}`)))
		noerr.Must(w, w.srv.Set("/kiel/groups/g/partitions", []byte(`["t:0", "t:x"]`)))
		shown(1, 1, 0, 2, 0, 1, 1, 0, 0)
		noerr.Must(w, w.srv.Set("/kiel/groups/g/partitions", []byte(`no set`)))
		noerr.Must(w, w.srv.Create("/kiel/groups/g/zones", []byte(`no zones`)))
		shown(1, 1, 0, 2, 0, 1, 1, 1, 1)
		noerr.Want(w, a.end())
	})
}
