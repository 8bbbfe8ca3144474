package consumer

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/internal/promreg"
)

// received returns counters of what handlers receive, which it adds to a set. They are brought up to date before each scrape.
func (g *gauges) received(set *promreg.Set, name, help, label string) *prometheus.CounterVec {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: set.Labels()}, []string{label})
	return promreg.Add(set, receivedVec{vec, g}).CounterVec
}

// receivedVec collects counters of what handlers have received from channels.
type receivedVec struct {
	*prometheus.CounterVec
	of *gauges
}

// Collect implements prometheus.Collector.
func (v receivedVec) Collect(ch chan<- prometheus.Metric) {
	if group := v.of.group.Load(); group != nil {
		for _, p := range group.open() {
			if c := p.handler.channel.Load(); c != nil {
				c.count()
			}
		}
	}
	v.CounterVec.Collect(ch)
}
