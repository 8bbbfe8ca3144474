package allocator

import (
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/internal/promreg"
	"github.com/kielgo/kiel/session"
)

// Values of the label stage that this package uses. Ownership has its own.
const (
	stageTotal    = "total"    // first change to snapshot
	stageSettle   = "settle"   // first change to computation
	stageCompute  = "compute"  // failures only; its time is assignment_compute_seconds
	stageCallback = "callback" // one call of OnRebalance
)

// metrics are counted by the loop and the delivery goroutine. What is a state,
// not a count, is read from the allocator by gauges at the time of a scrape.
type metrics struct {
	rebalances *prometheus.CounterVec
	failed     *prometheus.CounterVec
	coalesced  prometheus.Counter
	duration   *prometheus.HistogramVec
	compute    prometheus.Histogram
	gauges     *gauges
}

// withGroup puts the label group on what is registered on reg; nil stays nil.
func withGroup(reg prometheus.Registerer, group string) prometheus.Registerer {
	if reg == nil {
		return nil
	}
	return prometheus.WrapRegistererWith(prometheus.Labels{"group": group}, reg)
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		rebalances: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kiel_rebalances_total",
			Help: "Mappings that were computed and applied, by what changed.",
		}, []string{"trigger"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kiel_rebalances_failed_total",
			Help: "Rebalances that failed, by stage.",
		}, []string{"stage"}),
		coalesced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kiel_rebalance_events_coalesced_total",
			Help: "Changes that were merged into a rebalance that waited already.",
		}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kiel_rebalance_duration_seconds",
			Help:    "Time that a stage of a rebalance took, in seconds.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"stage"}),
		compute: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "kiel_assignment_compute_seconds",
			Help:    "Time that the allocation function took, in seconds.",
			Buckets: []float64{.0001, .0003, .001, .003, .01, .03, .1, .3, 1, 3, 10},
		}),
		gauges: newGauges(),
	}
	var errs [6]error
	m.rebalances, errs[0] = promreg.Register(reg, m.rebalances)
	m.failed, errs[1] = promreg.Register(reg, m.failed)
	m.coalesced, errs[2] = promreg.Register(reg, m.coalesced)
	m.duration, errs[3] = promreg.Register(reg, m.duration)
	m.compute, errs[4] = promreg.Register(reg, m.compute)
	m.gauges, errs[5] = promreg.Register(reg, m.gauges)
	for _, t := range triggers() {
		m.rebalances.WithLabelValues(string(t))
	}
	m.failed.WithLabelValues(stageCompute)
	m.failed.WithLabelValues(stageCallback)
	return m, errors.Join(errs[:]...)
}

// state is what the gauges show.
type state struct {
	members, partitions, zoned int
	lastRead                   time.Time // of that of both which was read earlier; zero until both were
	rebalancing                bool
	lastRebalance              time.Time
	snapshot                   *Snapshot
	session                    session.Stats
}

// gauges shows the state of the allocator that runs, and nothing while none
// does: so no series of a stopped member is left.
type gauges struct {
	source atomic.Pointer[func() state]

	inProgress, lastRebalance, members, partitions, zoned, unwanted, assigned *prometheus.Desc
	sessionState, expirations, reconnects, viewAge                            *prometheus.Desc
}

func newGauges() *gauges {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &gauges{
		inProgress:    desc("kiel_rebalance_in_progress", "1 while a change waits to be acted on, or a mapping is computed."),
		lastRebalance: desc("kiel_last_rebalance_timestamp_seconds", "When a mapping was applied last, in seconds since 1970."),
		members:       desc("kiel_members", "Members of the group, as last read."),
		partitions:    desc("kiel_partitions", "Items of the shared set, as last read."),
		zoned:         desc("kiel_zoned_partitions", "Partitions that have a zone, in the set or not, as last read."),
		unwanted:      desc("kiel_unwanted_partitions", "Partitions of topics that no member asks for, which the mapping leaves out."),
		assigned:      desc("kiel_assigned_partitions", "Partitions that the mapping gives to this member.", "topic"),
		sessionState:  desc("kiel_zk_session_state", "1 for the state that the ZooKeeper session is in.", "state"),
		expirations:   desc("kiel_zk_session_expirations_total", "ZooKeeper sessions that expired."),
		reconnects:    desc("kiel_zk_reconnects_total", "Times that a connection to ZooKeeper was made again."),
		viewAge:       desc("kiel_view_age_seconds", "Time since ZooKeeper last confirmed members and set."),
	}
}

// show makes the gauges read from source until the returned function is called.
func (g *gauges) show(source func() state) (stop func()) {
	g.source.Store(&source)
	return func() { g.source.CompareAndSwap(&source, nil) }
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		g.inProgress, g.lastRebalance, g.members, g.partitions, g.zoned, g.unwanted, g.assigned,
		g.sessionState, g.expirations, g.reconnects, g.viewAge,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	source := g.source.Load()
	if source == nil {
		return
	}
	s := (*source)()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(g.inProgress, bit(s.rebalancing))
	if !s.lastRead.IsZero() {
		gauge(g.members, float64(s.members))
		gauge(g.partitions, float64(s.partitions))
		gauge(g.zoned, float64(s.zoned))
		gauge(g.viewAge, time.Since(s.lastRead).Seconds())
	}
	if !s.lastRebalance.IsZero() {
		gauge(g.lastRebalance, float64(s.lastRebalance.UnixMilli())/1000)
	}
	if s.snapshot != nil {
		gauge(g.unwanted, float64(s.snapshot.mapping.leftOut))
		for topic, ids := range topics(s.snapshot.mine) {
			gauge(g.assigned, float64(len(ids)), strings.ToValidUTF8(topic, "?"))
		}
	}
	for _, name := range []string{"connecting", "connected", "suspended", "lost", "closed"} {
		gauge(g.sessionState, bit(s.session.State == name), name)
	}
	ch <- prometheus.MustNewConstMetric(g.expirations, prometheus.CounterValue, float64(s.session.Expirations))
	ch <- prometheus.MustNewConstMetric(g.reconnects, prometheus.CounterValue, float64(s.session.Reconnects))
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
