package consumer

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kielgo/kiel/session"
)

// groupOn returns a group that has joined nothing, with its metrics in reg.
func groupOn(tb testing.TB, reg prometheus.Registerer, name string) (*Group, error) {
	tb.Helper()
	zk, err := session.New([]string{"zk:2181"}, session.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return New(zk, []string{"kafka:9092"}, name, Options{Name: "m", Config: testConfig(), Registerer: reg})
}

// Groups of different names share a registerer. Of two of one name the second is refused until the first was closed, and the
// error says what to do.
func TestGroupsShareARegisterer(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	made := func(reg prometheus.Registerer, name string) *Group {
		t.Helper()
		g, err := groupOn(t, reg, name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return g
	}
	first, other := made(reg, "g"), made(reg, "h")
	_, err := groupOn(t, reg, "g")
	if err == nil || !strings.Contains(err.Error(), "WrapRegistererWith") {
		t.Errorf("a second group g: %v", err)
	}
	second := made(prometheus.WrapRegistererWith(prometheus.Labels{"client": "b"}, prometheus.NewRegistry()), "g")
	all, err := testutil.GatherAndCount(reg)
	if err != nil || all == 0 {
		t.Errorf("%d series, %v", all, err)
	}
	for _, g := range []*Group{first, first, second} {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
	if n, err := testutil.GatherAndCount(reg); err != nil || n != all/2 {
		t.Errorf("%d series when one of two groups was closed, of %d; %v", n, all, err)
	}
	if err := errors.Join(made(reg, "g").Close(), other.Close()); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(reg); err != nil || n != 0 {
		t.Errorf("%d series are left, %v", n, err)
	}
}

// A name that is taken by somebody else's metric is an error, and nothing of the group stays registered.
func TestMetricsThatAreTaken(t *testing.T) {
	for _, name := range []string{"kiel_consumer_errors_dropped_total", "kiel_members", "kiel_claims_total", "kiel_zk_bad_frames_total"} {
		reg := prometheus.NewRegistry()
		reg.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: "Mine.", ConstLabels: prometheus.Labels{"group": "g"}}))
		if _, err := groupOn(t, reg, "g"); err == nil {
			t.Errorf("%s: a conflict was not an error", name)
		}
		if n, err := testutil.GatherAndCount(reg); err != nil || n != 1 {
			t.Errorf("%s: %d series, %v", name, n, err)
		}
	}
}

// registered is a Registry that tells what is registered in it.
type registered struct {
	*prometheus.Registry

	all []prometheus.Collector
}

func (r *registered) Register(c prometheus.Collector) error {
	r.all = append(r.all, c)
	return r.Registry.Register(c)
}

// Everything has the label group from the beginning. Else each scrape would put it on, and describe each series anew.
func TestScrapeDescribesNothing(t *testing.T) {
	reg := &registered{Registry: prometheus.NewPedanticRegistry()}
	g, err := groupOn(t, reg, "g")
	if err != nil {
		t.Fatal(err)
	}
	g.metrics.of("orders")
	const shared = "kiel_zk_proof_duration_seconds" // one histogram for all groups of the session, and it alone
	known, anew, all := map[*prometheus.Desc]bool{}, map[string]bool{}, 0
	for _, c := range reg.all {
		for d := range collected(c.Describe) {
			known[d] = true
			if text := d.String(); strings.Count(text, `group="g"`) != 1 {
				t.Errorf("has not the label group: %s", text)
			}
		}
		for m := range collected(c.Collect) {
			all++
			if !known[m.Desc()] {
				anew[m.Desc().String()] = true
			}
		}
	}
	for text := range anew {
		if !strings.Contains(text, shared) {
			t.Errorf("described anew: %s", text)
		}
	}
	if len(anew) != 1 {
		t.Errorf("%d descriptions are made anew for %d series", len(anew), all)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

// collected returns what send sends.
func collected[T any](send func(chan<- T)) <-chan T {
	ch := make(chan T)
	go func() {
		defer close(ch)
		send(ch)
	}()
	return ch
}
