package ownership

import (
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/internal/promreg"
)

// Labels of kiel_unclaimable_partitions.
const (
	reasonName       = "name"       // can't be a znode's name
	reasonRefused    = "refused"    // by the Accept option
	reasonBudget     = "budget"     // the session's claims take too much room
	reasonStuck      = "stuck"      // an older handler still runs
	reasonPersistent = "persistent" // a persistent znode is in the claim's place
	reasonForeign    = "foreign"    // an ephemeral znode that is no member's is in the claim's place
	resultOK         = "ok"         // of kiel_claims_total
	resultConflict   = "conflict"   // held by another
	resultUnknown    = "unknown"    // no answer
	resultError      = "error"      // refused
	stageRevoke      = "revoke"
	stageClaim       = "claim"
	stageHandler     = "handler" // a panic, or no return, of a handler, Observer, Accept or OnError
	movedClaimed     = "claimed"
	movedRevoked     = "revoked"
	movedLost        = "lost"
)

// reasons are those of kiel_unclaimable_partitions.
func reasons() []string {
	return []string{reasonName, reasonRefused, reasonBudget, reasonStuck, reasonPersistent, reasonForeign}
}

type metrics struct {
	owned         *ownedTopics
	moved         *prometheus.CounterVec
	claimWait     prometheus.Histogram
	claims        *prometheus.CounterVec
	waitsOverdue  prometheus.Counter
	errorsDropped prometheus.Counter
	drainTimeouts prometheus.Counter
	unclaimed     *prometheus.GaugeVec
	info          *prometheus.GaugeVec
	stuck         prometheus.Gauge
	unowned       prometheus.Gauge
	unownedSince  *since
	owner         atomic.Pointer[Owner] // that runs; nil while none does

	claimFailed, revokeFailed, handlerFailed prometheus.Counter
	claimStage, revokeStage                  prometheus.Histogram
}

func newMetrics(set *promreg.Set) *metrics {
	labels := set.Labels()
	m := &metrics{
		unownedSince: &since{},
		owned: &ownedTopics{claims: make(map[string]int), gauge: promreg.Add(set, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kiel_owned_partitions", ConstLabels: labels, Help: "Partitions that this member owns.",
		}, []string{"topic"}))},
		moved: promreg.Add(set, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kiel_partitions_moved_total", ConstLabels: labels, Help: "Partitions that came to this member, were revoked from it, or lost.",
		}, []string{"direction"})),
		claimWait: promreg.Add(set, prometheus.NewHistogram(promreg.Native(prometheus.HistogramOpts{
			Name: "kiel_claim_wait_seconds", ConstLabels: labels, Help: "Time from the allocation of a partition to its claim, in seconds.",
			Buckets: []float64{.001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}))),
		claims: promreg.Add(set, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kiel_claims_total", ConstLabels: labels, Help: "Attempts to claim a partition, by result.",
		}, []string{"result"})),
		waitsOverdue: promreg.Add(set, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kiel_claim_waits_overdue_total", ConstLabels: labels, Help: "Claims found held by another for longer than RebalanceTimeout.",
		})),
		errorsDropped: promreg.Add(set, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kiel_errors_dropped_total", ConstLabels: labels, Help: "Errors dropped because too many waited behind a slow call of OnError.",
		})),
		drainTimeouts: promreg.Add(set, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kiel_drain_timeouts_total", ConstLabels: labels, Help: "Handlers that did not return in time after revocation or loss.",
		})),
		unclaimed: promreg.Add(set, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kiel_unclaimable_partitions", ConstLabels: labels, Help: "Partitions that were allocated to this member and that it does not claim, by reason.",
		}, []string{"reason"})),
		info: promreg.Add(set, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kiel_member_info", ConstLabels: labels, Help: "The member, 1 while it runs.",
		}, []string{"member", "module_version"})),
		stuck: promreg.Add(set, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kiel_stuck_handlers", ConstLabels: labels, Help: "Handlers that have not returned in time after revocation or loss, and still run.",
		})),
		unowned: promreg.Add(set, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kiel_unowned_partitions", ConstLabels: labels,
			Help: "Partitions that the mapping gives to any member and that nobody has claimed, as last listed, which is once in a session timeout.",
		})),
		claimFailed:   promreg.Add(set, promreg.RebalanceFailures(set, stageClaim)),
		revokeFailed:  promreg.Add(set, promreg.RebalanceFailures(set, stageRevoke)),
		handlerFailed: promreg.Add(set, promreg.RebalanceFailures(set, stageHandler)),
		claimStage:    promreg.Add(set, promreg.RebalanceDuration(set, stageClaim)),
		revokeStage:   promreg.Add(set, promreg.RebalanceDuration(set, stageRevoke)),
	}
	promreg.Add(set, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kiel_oldest_unowned_partition_seconds", ConstLabels: labels,
		Help: "Time since the oldest of the unowned partitions was first seen without a claim, in seconds; 0 when there are none.",
	}, m.unownedSince.seconds))
	promreg.Add(set, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kiel_ready", ConstLabels: labels, Help: "1 while the member is ready, as /readyz says: it has joined, its session is trusted, and its first claims since then are settled.",
	}, m.ready))
	for _, reason := range reasons() {
		m.unclaimed.WithLabelValues(reason)
	}
	for _, result := range []string{resultOK, resultConflict, resultUnknown, resultError} {
		m.claims.WithLabelValues(result)
	}
	for _, direction := range []string{movedClaimed, movedRevoked, movedLost} {
		m.moved.WithLabelValues(direction)
	}
	return m
}

// ready is 1 while the owner that runs is ready.
func (m *metrics) ready() float64 {
	if o := m.owner.Load(); o != nil && o.NotReady() == "" {
		return 1
	}
	return 0
}

// showUnowned shows how many partitions are unowned, and since when the oldest is.
func (m *metrics) showUnowned(count int, oldest time.Time) {
	m.unowned.Set(float64(count))
	m.unownedSince.at.Store(&oldest)
}

// since is a moment, for a gauge that shows how long ago it was.
type since struct{ at atomic.Pointer[time.Time] }

// seconds is how long ago it was, 0 when it is none.
func (s *since) seconds() float64 {
	if at := s.at.Load(); at != nil && !at.IsZero() {
		return time.Since(*at).Seconds()
	}
	return 0
}

// ownedTopics shows how many claims there are of each topic. A topic has a series from the plan on that gives this member a
// partition of it, until a plan gives it none and all claims are released.
type ownedTopics struct {
	gauge *prometheus.GaugeVec

	mu      sync.Mutex
	planned map[string]bool
	claims  map[string]int // by topic that has a series
}

// plan takes the topics of a new plan; the map is not changed any more.
func (o *ownedTopics) plan(topics map[string]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.planned = topics
	for topic, n := range o.claims {
		o.show(topic, n)
	}
	for topic := range topics {
		o.show(topic, o.claims[topic])
	}
}

// add counts a claim, or with -1 the end of one.
func (o *ownedTopics) add(topic string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.show(topic, o.claims[topic]+n)
}

func (o *ownedTopics) show(topic string, n int) {
	label := strings.ToValidUTF8(topic, "?")
	if n == 0 && !o.planned[topic] {
		delete(o.claims, topic)
		o.gauge.DeleteLabelValues(label)
		return
	}
	o.claims[topic] = n
	o.gauge.WithLabelValues(label).Set(float64(n))
}

// version returns the version of this module in the running program.
func version() string {
	const path = "github.com/kielgo/kiel"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if info.Main.Path == path {
		return info.Main.Version
	}
	for _, dep := range info.Deps {
		if dep.Path == path {
			return dep.Version
		}
	}
	return "unknown"
}
