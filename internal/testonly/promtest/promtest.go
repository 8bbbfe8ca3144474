// Package promtest compares the metrics of a group with what a test wants. It leaves the label group out.
package promtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// TB is what it needs of a test.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Values returns the values of all gauges and counters, by names as name{label=value,…}. A series without the label group fails
// the test, and so do two that differ in it alone.
func Values(tb TB, reg prometheus.Gatherer) map[string]float64 {
	tb.Helper()
	families, err := reg.Gather()
	if err != nil {
		tb.Fatalf("%v", err)
	}
	values := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			ofGroup := false
			for _, l := range m.GetLabel() {
				if l.GetName() == "group" {
					ofGroup = true
				} else {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
			}
			name := fmt.Sprintf("%s{%s}", f.GetName(), strings.Join(labels, ","))
			if !ofGroup {
				tb.Errorf("%s has no label group", name)
			}
			if _, again := values[name]; again {
				tb.Errorf("%s is there of two groups", name)
			}
			values[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return values
}

// Has checks the values of some series.
func Has(tb TB, reg prometheus.Gatherer, want map[string]float64) {
	tb.Helper()
	got := Values(tb, reg)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if v, ok := got[name]; !ok || v != want[name] {
			tb.Errorf("%s is %v, there %v, want %v", name, v, ok, want[name])
		}
	}
}

// Families checks all series of metrics: each line names a metric, and then, each behind a blank, its series as
// label=value,…:number, or as a number alone if it has no label.
func Families(tb TB, reg prometheus.Gatherer, lines ...string) {
	tb.Helper()
	values := Values(tb, reg)
	for _, line := range lines {
		words := strings.Fields(line)
		want := slices.Sorted(slices.Values(words[1:]))
		var got []string
		for name, v := range values {
			if metric, labels, _ := strings.Cut(name, "{"); metric == words[0] {
				got = append(got, strings.TrimPrefix(fmt.Sprintf("%s:%v", strings.TrimSuffix(labels, "}"), v), ":"))
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			tb.Errorf("%s has the series %q, want %q", words[0], got, want)
		}
	}
}
