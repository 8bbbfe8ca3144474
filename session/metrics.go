package session

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/internal/promreg"
)

// states returns the values of Stats.State.
func states() []string { return []string{"connecting", "connected", "suspended", "lost", "closed"} }

// metrics collects the Stats of a session, as they are at the time of a scrape.
type metrics struct {
	stats  func() Stats         // of the Session
	proofs prometheus.Histogram // times of proofs, without labels

	times    prometheus.Collector // proofs with the labels
	state    *prometheus.Desc
	counters []counter
	gauges   []gauge
}

type counter struct {
	desc *prometheus.Desc
	of   func(*Stats) uint64
}

type gauge struct {
	desc *prometheus.Desc
	of   func(*Stats) float64
}

func newMetrics(stats func() Stats) *metrics {
	proofs := prometheus.NewHistogram(promreg.Native(prometheus.HistogramOpts{
		Name:    "kiel_zk_proof_duration_seconds",
		Help:    "Time from sending a proof of life to its answer by a quorum, in seconds.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}))
	return withLabels(stats, proofs, nil)
}

// With implements promreg.Labeller: it returns the same metrics with constant labels.
func (m *metrics) With(labels prometheus.Labels) prometheus.Collector {
	return withLabels(m.stats, m.proofs, labels)
}

func withLabels(stats func() Stats, proofs prometheus.Histogram, constant prometheus.Labels) *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, constant)
	}
	return &metrics{
		stats:  stats,
		proofs: proofs,
		times:  prometheus.WrapCollectorWith(constant, proofs),
		state:  desc("kiel_zk_session_state", "1 for the state that the ZooKeeper session is in.", "state"),
		counters: []counter{
			{desc("kiel_zk_session_expirations_total", "ZooKeeper sessions that expired."), func(s *Stats) uint64 { return s.Expirations }},
			{desc("kiel_zk_reconnects_total", "Times that a connection to ZooKeeper was made again."), func(s *Stats) uint64 { return s.Reconnects }},
			{desc("kiel_zk_trust_losses_total", "Times that trust in the session ended because no proof of life came in time."), func(s *Stats) uint64 { return s.TrustLosses }},
			{desc("kiel_zk_clients_replaced_total", "ZooKeeper clients that hung and were replaced, and losses of the servers' data that were noticed."), func(s *Stats) uint64 { return s.Replaced }},
			{desc("kiel_zk_clients_abandoned_total", "ZooKeeper clients that did not end when they were closed."), func(s *Stats) uint64 { return s.Abandoned }},
			{desc("kiel_zk_timeout_changes_total", "Connections for which the servers granted another session timeout than before."), func(s *Stats) uint64 { return s.TimeoutChanges }},
			{desc("kiel_zk_bad_frames_total", "Connections that were dropped because a server sent what no server sends."), func(s *Stats) uint64 { return s.BadFrames }},
		},
		gauges: []gauge{
			{desc("kiel_zk_session_timeout_seconds", "The session timeout as granted last, or as asked for before that, in seconds."), func(s *Stats) float64 { return s.Timeout.Seconds() }},
			{desc("kiel_zk_trust_remaining_seconds", "Time until trust in the session ends unless a proof of life is answered, in seconds; 0 when it has ended."), func(s *Stats) float64 { return s.TrustLeft.Seconds() }},
			{desc("kiel_zk_ephemeral_bytes", "Bytes that the ephemeral znodes of the session take of its budget."), func(s *Stats) float64 { return float64(s.EphemeralBytes) }},
			{desc("kiel_zk_ephemeral_bytes_limit", "The session's budget for ephemeral znodes, in bytes."), func(s *Stats) float64 { return float64(s.EphemeralBudget) }},
		},
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	m.times.Describe(ch)
	ch <- m.state
	for _, c := range m.counters {
		ch <- c.desc
	}
	for _, g := range m.gauges {
		ch <- g.desc
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.times.Collect(ch)
	stats := m.stats()
	for _, state := range states() {
		v := 0.0
		if stats.State == state {
			v = 1
		}
		ch <- prometheus.MustNewConstMetric(m.state, prometheus.GaugeValue, v, state)
	}
	for _, c := range m.counters {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(c.of(&stats)))
	}
	for _, g := range m.gauges {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.of(&stats))
	}
}

// Collector returns the metrics of the session without the label group. Packages that build on a session register them together
// with their own. A program that uses the session alone sets Options.Registerer instead.
func (s *Session) Collector() prometheus.Collector { return s.metrics }
