package allocator

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/internal/promreg"
	"github.com/kielgo/kiel/status"
)

// The values of the label stage in this package. Package ownership has others.
const (
	stageTotal    = "total"    // first change to snapshot
	stageCoalesce = "coalesce" // first change to computation
	stageCompute  = "compute"  // failures alone; kiel_assignment_compute_seconds has the time
	stageCallback = "callback" // one call of OnRebalance
)

// metrics are the allocator's metrics. The loop and the delivery goroutine count; gauges read the allocator's state at a scrape.
type metrics struct {
	rebalances *prometheus.CounterVec
	coalesced  prometheus.Counter
	compute    prometheus.Histogram
	gauges     *gauges

	computeFailed, callbackFailed prometheus.Counter
	total, coalesce, callback     prometheus.Histogram
}

func newMetrics(set *promreg.Set) *metrics {
	labels := set.Labels()
	m := &metrics{
		rebalances: promreg.Add(set, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kiel_rebalances_total", ConstLabels: labels,
			Help: "Mappings that were computed and applied, by the cause of their reason.",
		}, []string{"cause"})),
		coalesced: promreg.Add(set, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kiel_rebalance_events_coalesced_total", ConstLabels: labels,
			Help: "Changes that were merged into a rebalance that waited already.",
		})),
		compute: promreg.Add(set, prometheus.NewHistogram(promreg.Native(prometheus.HistogramOpts{
			Name: "kiel_assignment_compute_seconds", ConstLabels: labels,
			Help:    "Time that the allocation function took, in seconds.",
			Buckets: []float64{.0001, .0003, .001, .003, .01, .03, .1, .3, 1, 3, 10},
		}))),
		gauges:         promreg.Add(set, newGauges(labels)),
		computeFailed:  promreg.Add(set, promreg.RebalanceFailures(set, stageCompute)),
		callbackFailed: promreg.Add(set, promreg.RebalanceFailures(set, stageCallback)),
		total:          promreg.Add(set, promreg.RebalanceDuration(set, stageTotal)),
		coalesce:       promreg.Add(set, promreg.RebalanceDuration(set, stageCoalesce)),
		callback:       promreg.Add(set, promreg.RebalanceDuration(set, stageCallback)),
	}
	for _, c := range status.Causes() {
		m.rebalances.WithLabelValues(string(c))
	}
	return m
}

// state is what the gauges show.
type state struct {
	members, partitions, zoned int
	confirmed                  time.Time // when the older of the two views of members and set was read; when Run began, if one is missing
	rebalancing                bool
	unwanted                   int
	disagreements              []status.Disagreement
	snapshot                   *Snapshot // nil before the first
}

// gauges shows the state of the allocator that runs, and zeros while none does.
type gauges struct {
	state   atomic.Pointer[func() state]
	applied atomic.Int64 // when a mapping was applied last, in Unix ms; 0 before the first

	mu     sync.Mutex
	topics []string // the topics of this member's partitions at the last scrape at which it had joined
	hashed bool     // whether a scrape has shown hashes

	inProgress, lastRebalance, members, partitions, zoned, unwanted, disagreements, assigned, viewAge, mapping, inputs *prometheus.Desc
}

func newGauges(constant prometheus.Labels) *gauges {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, constant)
	}
	return &gauges{
		inProgress:    desc("kiel_rebalance_in_progress", "1 while a change waits to be acted on, or a mapping is computed."),
		lastRebalance: desc("kiel_last_rebalance_timestamp_seconds", "When a mapping was applied last, in seconds since 1970; 0 before the first."),
		members:       desc("kiel_members", "Members of the group, as last read."),
		partitions:    desc("kiel_set_items", "Items of the shared set, as last read."),
		zoned:         desc("kiel_zoned_partitions", "Partitions that have a zone, in the set or not, as last read."),
		unwanted:      desc("kiel_unwanted_partitions", "Partitions of topics that no member asks for, which the mapping leaves out."),
		disagreements: desc("kiel_disagreements", "Members, topics or items, as last read, that keep the group from acting as one, by the kind of "+
			"disagreement that /status lists; 1 where the kind is about a znode.", "kind"),
		assigned: desc("kiel_planned_partitions", "Partitions that the mapping gives to this member.", "topic"),
		viewAge:  desc("kiel_view_age_seconds", "Time since ZooKeeper last confirmed members and set, or since the member began."),
		mapping: desc("kiel_mapping_hash", "A hash of the mapping: of the partitions and the names of their owners. 0 while this member is not "+
			"in the group."),
		inputs: desc("kiel_mapping_inputs_hash", "A hash of the allocation function's id and of all that it was given: names, weights, zones and topics of "+
			"members, partitions and their zones. Members with the same must have the same kiel_mapping_hash. 0 while this member is not in the group."),
	}
}

// show makes the gauges read from current until the returned function is called.
func (g *gauges) show(current func() state) (stop func()) {
	g.state.Store(&current)
	return func() { g.state.CompareAndSwap(&current, nil) }
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		g.inProgress, g.lastRebalance, g.members, g.partitions, g.zoned, g.unwanted, g.disagreements, g.assigned, g.viewAge, g.mapping, g.inputs,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	var s state
	if current := g.state.Load(); current != nil {
		s = (*current)()
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(g.inProgress, bit(s.rebalancing))
	gauge(g.lastRebalance, float64(g.applied.Load())/1000)
	gauge(g.members, float64(s.members))
	gauge(g.partitions, float64(s.partitions))
	gauge(g.zoned, float64(s.zoned))
	gauge(g.viewAge, age(s.confirmed))
	gauge(g.unwanted, float64(s.unwanted))
	for kind, n := range countDisagreements(s.disagreements) {
		gauge(g.disagreements, float64(n), string(kind))
	}
	for topic, n := range g.shares(s.snapshot) {
		gauge(g.assigned, float64(n), topic)
	}
	if h, ok := g.hashes(s.snapshot); ok {
		gauge(g.mapping, float64(h.mapping))
		gauge(g.inputs, float64(h.inputs))
	}
}

// hashes returns the hashes of the mapping while the member has joined, and zeros while it has not. ok is false before the first
// mapping.
func (g *gauges) hashes(s *Snapshot) (h hashes, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s != nil && s.Joined {
		h = s.mapping.hashes
	}
	g.hashed = g.hashed || h.inputs != 0
	return h, g.hashed
}

// countDisagreements returns how many names each kind has; a disagreement without names counts as one.
func countDisagreements(all []status.Disagreement) map[status.DisagreementKind]int {
	counts := make(map[status.DisagreementKind]int)
	for _, kind := range disagreementKinds() {
		counts[kind] = 0
	}
	for _, d := range all {
		counts[d.Kind] += max(len(d.Names)+d.More, 1)
	}
	return counts
}

// shares returns how many partitions of each topic the mapping gives to this member. While the member has joined, the topics are
// those of its partitions. While it has not, they are the same as before, with no partition each.
func (g *gauges) shares(s *Snapshot) map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	shares := make(map[string]int)
	if s == nil || !s.Joined {
		for _, topic := range g.topics {
			shares[topic] = 0
		}
		return shares
	}
	for topic, ids := range topics(s.mine) {
		shares[strings.ToValidUTF8(topic, "?")] += len(ids)
	}
	g.topics = slices.Collect(maps.Keys(shares))
	return shares
}

// age returns how long ago t was, in seconds; 0 if t is zero.
func age(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return time.Since(t).Seconds()
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
