package consumer

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/promreg"
)

// topicSeries returns the names of the series of a registry that have the label topic, with that label, and how many.
func topicSeries(t *testing.T, reg prometheus.Gatherer) (out []string) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "topic" {
					out = append(out, fmt.Sprintf("%s %s", strings.TrimPrefix(f.GetName(), "kiel_consumer_"), l.GetValue()))
				}
			}
		}
	}
	return out
}

// measured returns a rig whose group has metrics.
func measured(t *testing.T) (*rig, *metrics, *prometheus.Registry) {
	t.Helper()
	r := newRig(t, nil, nil)
	reg := prometheus.NewPedanticRegistry()
	m, set := promreg.New(promreg.NewRegistry(reg, "g"), "g", newMetrics)
	if err := set.Complete(); err != nil {
		t.Fatal(err)
	}
	m.observed = true
	m.gauges.group.Store(r.group)
	return r, m, reg
}

// Topics of the set may have any name. Prometheus takes UTF-8 alone, and each series once.
func TestTopicsWithOddNames(t *testing.T) {
	r, m, reg := measured(t)
	odd := []string{"a\xff", "a\xfe"}
	for _, topic := range odd {
		p, _ := trackedPartition(t, 0)
		p.id = kiel.Partition{Topic: topic}
		r.session.session.opened(p)
		p.metrics = m.of(topic)
		p.metrics.delay.Observe(1)
		m.handlerFailed(topic, actionReopen)
	}
	got := topicSeries(t, reg)
	for _, name := range []string{"messages_total", "handler_duration_seconds", "message_age_seconds", "lag_messages", "lag_seconds", "paused_partitions", "handler_stalled_seconds"} {
		if n := len(slices.DeleteFunc(slices.Clone(got), func(s string) bool { return s != name+" a?" })); n != 1 {
			t.Errorf("%d series of %s, want one of a?: %q", n, name, got)
		}
	}
}

// A topic that is gone leaves no series.
func TestTopicIsForgotten(t *testing.T) {
	r, m, reg := measured(t)
	var open []*Partition
	for _, topic := range []string{"stays", "goes"} {
		p, _ := trackedPartition(t, 0)
		p.id = kiel.Partition{Topic: topic}
		p.metrics = m.of(topic)
		m.handlerFailed(topic, actionReopen)
		m.resets.WithLabelValues(topic, reasonNone)
		m.stuck.WithLabelValues(topic)
		m.missing.WithLabelValues(topic)
		r.session.session.opened(p)
		open = append(open, p)
	}
	before := topicSeries(t, reg)
	for _, p := range open {
		r.session.session.closed(p, false)
	}
	m.forget("goes")
	after := topicSeries(t, reg)
	want := slices.DeleteFunc(before, func(s string) bool {
		return strings.HasSuffix(s, " goes") || strings.HasPrefix(s, "lag_") || strings.HasPrefix(s, "uncommitted_")
	})
	if !slices.Equal(after, want) {
		t.Errorf("the series are %q, want %q", after, want)
	}
}
