package promreg_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kielgo/kiel/internal/promreg"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// engine and wheel are the metrics of two parts that share a name, by stage.
type engine struct{ runs, failed prometheus.Counter }

type wheel struct{ turns, failed prometheus.Counter }

// inSet returns what the metrics of a set are made of.
func inSet(set *promreg.Set, name, help string) prometheus.CounterOpts {
	o := opts(name, help)
	o.ConstLabels = set.Labels()
	return o
}

func newEngine(set *promreg.Set) *engine {
	return &engine{promreg.Add(set, prometheus.NewCounter(inSet(set, "runs_total", "Runs."))), promreg.Add(set, promreg.RebalanceFailures(set, "run"))}
}

func newWheel(set *promreg.Set) *wheel {
	return &wheel{promreg.Add(set, prometheus.NewCounter(inSet(set, "turns_total", "Turns."))), promreg.Add(set, promreg.RebalanceFailures(set, "turn"))}
}

// count is how many series there are.
func count(t *testing.T, reg prometheus.Gatherer) int {
	t.Helper()
	n, err := testutil.GatherAndCount(reg)
	noerr.Must(t, err)
	return n
}

func TestSetsComeAndGo(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	show := func(set *promreg.Set) func() {
		t.Helper()
		noerr.Must(t, set.Complete())
		hide, err := set.Show()
		noerr.Must(t, err)
		return hide
	}
	_, first := promreg.New(reg, "g", newEngine)
	_, second := promreg.New(reg, "g", newEngine)
	_, part := promreg.New(reg, "g", newWheel)
	_, other := promreg.New(reg, "h", newEngine)
	if n := count(t, reg); n != 0 {
		t.Errorf("%d series before anything was shown", n)
	}
	hide := show(first)
	show(part)
	show(other)
	if n := count(t, reg); n != 6 {
		t.Errorf("%d series of three parts", n)
	}
	_, err := second.Show()
	if _, taken := errors.AsType[prometheus.AlreadyRegisteredError](err); !taken || !strings.Contains(err.Error(), "WrapRegistererWith") {
		t.Errorf("the second: %v", err)
	}
	hide()
	show(second)
	hide() // which is not the first's any more
	if n := count(t, reg); n != 6 {
		t.Errorf("%d series when the second has taken the first's place", n)
	}
}

func TestKeeperKeeps(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	k := promreg.NewRegistry(reg, "g")
	for i := range 3 {
		e, set := promreg.New(k, "ignored", newEngine)
		_, parts := promreg.New(k, "", newWheel)
		noerr.Must(t, errors.Join(set.Complete(), parts.Complete()))
		hide, err := set.Show()
		noerr.Must(t, err)
		e.runs.Inc()
		hide()
		if n := testutil.ToFloat64(e.runs); n != float64(i+1) || count(t, reg) != 4 || len(k.Sets()) != 2 {
			t.Errorf("%d: %v runs, %d series, %d sets", i, n, count(t, reg), len(k.Sets()))
		}
	}
	_, set := promreg.New(promreg.NewRegistry(reg, "g"), "g", newEngine)
	if err := set.Complete(); err == nil {
		t.Error("two Keepers registered the same")
	}
	k.Close()
	k.Close()
	if n := count(t, reg); n != 0 {
		t.Errorf("%d series after Close", n)
	}
}

func TestWithoutARegisterer(t *testing.T) {
	for _, reg := range []prometheus.Registerer{nil, promreg.NewRegistry(nil, "g")} {
		e, set := promreg.New(reg, "g", newEngine)
		hide, err := set.Show()
		noerr.Must(t, errors.Join(err, set.Complete()))
		e.runs.Inc()
		hide()
		if n := len(set.Collectors()); n != 2 {
			t.Errorf("%d collectors", n)
		}
	}
}

// TestRegistryIsARegisterer: what is registered on a Registry itself gets the label group, and goes when it is unregistered.
func TestRegistryIsARegisterer(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	k := promreg.NewRegistry(reg, "g")
	dials := prometheus.NewCounter(opts("dials_total", "Dials."))
	noerr.Must(t, k.Register(dials))
	k.MustRegister(prometheus.NewCounter(opts("reads_total", "Reads.")))
	want := "# HELP dials_total Dials.\n# TYPE dials_total counter\ndials_total{group=\"g\"} 0\n"
	noerr.Want(t, testutil.GatherAndCompare(reg, strings.NewReader(want), "dials_total"))
	if err := k.Register(dials); err == nil {
		t.Error("registered twice")
	}
	if !k.Unregister(dials) || count(t, reg) != 1 {
		t.Errorf("%d series after Unregister, want that of reads_total", count(t, reg))
	}
}
