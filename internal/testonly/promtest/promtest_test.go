package promtest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/internal/testonly/promtest"
)

// faults notes what a test is told.
type faults []string

func (*faults) Helper()                             {}
func (f *faults) Errorf(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }
func (f *faults) Fatalf(format string, args ...any) { f.Errorf(format, args...) }

func TestFaults(t *testing.T) {
	reg := prometheus.NewRegistry()
	in := prometheus.WrapRegistererWith(prometheus.Labels{"group": "g"}, reg)
	one := prometheus.NewGauge(prometheus.GaugeOpts{Name: "one", Help: "One."})
	many := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "many_total", Help: "Many."}, []string{"by"})
	in.MustRegister(one, many)
	one.Set(1.5)
	many.WithLabelValues("x").Inc()
	many.WithLabelValues("y").Add(2)

	promtest.Has(t, reg, map[string]float64{"one{}": 1.5, "many_total{by=y}": 2})
	promtest.Families(t, reg, "one 1.5", "many_total by=y:2 by=x:1", "none")
	var f faults
	promtest.Has(&f, reg, map[string]float64{"one{}": 1, "none{}": 0})
	promtest.Families(&f, reg, "one 1", "many_total by=x:1", "none 0")
	if len(f) != 5 {
		t.Errorf("%d faults:\n%s", len(f), strings.Join(f, "\n"))
	}
}

// The label group is left out, and so there must be one group alone.
func TestFaultsOfGroups(t *testing.T) {
	for name, groups := range map[string][]prometheus.Labels{
		"none": {{}},
		"two":  {{"group": "g"}, {"group": "h"}},
	} {
		t.Run(name, func(t *testing.T) {
			reg := prometheus.NewRegistry()
			for _, labels := range groups {
				reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "one", Help: "One.", ConstLabels: labels}))
			}
			var f faults
			if values := promtest.Values(&f, reg); len(f) != 1 || len(values) != 1 {
				t.Errorf("%d faults, values %v:\n%s", len(f), values, strings.Join(f, "\n"))
			}
		})
	}
}
