package ownership

import (
	"errors"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/internal/promreg"
)

// Labels of kiel_unclaimed_partitions.
const (
	reasonName       = "name"       // can't be a znode's name
	reasonRefused    = "refused"    // by the Accept option
	reasonBudget     = "budget"     // the session's claims take too much room
	reasonStuck      = "stuck"      // an older handler still runs
	reasonPersistent = "persistent" // a persistent znode stands in the claim's place
	resultOK         = "ok"         // of kiel_claims_total
	resultConflict   = "conflict"   // held by another
	resultTimeout    = "timeout"    // no answer
	resultError      = "error"      // refused
	stageRevoke      = "revoke"
	stageClaim       = "claim"
	stageCallback    = "callback"
	movedAssigned    = "assigned"
	movedRevoked     = "revoked"
	movedLost        = "lost"
)

// reasons are those of kiel_unclaimed_partitions.
func reasons() []string {
	return []string{reasonName, reasonRefused, reasonBudget, reasonStuck, reasonPersistent}
}

type metrics struct {
	owned         *prometheus.GaugeVec
	moved         *prometheus.CounterVec
	claimWait     prometheus.Histogram
	claims        *prometheus.CounterVec
	divergence    prometheus.Counter
	errorsDropped prometheus.Counter
	duration      *prometheus.HistogramVec
	failed        *prometheus.CounterVec
	drainTimeouts prometheus.Counter
	unclaimed     *prometheus.GaugeVec
	info          *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer, group string) (*metrics, error) {
	if reg != nil {
		reg = prometheus.WrapRegistererWith(prometheus.Labels{"group": group}, reg)
	}
	m := &metrics{
		owned: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kiel_owned_partitions", Help: "Partitions that this member owns.",
		}, []string{"topic"}),
		moved: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kiel_partitions_moved_total", Help: "Partitions that came to this member, were revoked from it, or lost.",
		}, []string{"direction"}),
		claimWait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kiel_claim_wait_seconds", Help: "Time from the allocation of a partition to its claim, in seconds.",
			Buckets: []float64{.001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}),
		claims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kiel_claims_total", Help: "Attempts to claim a partition, by result.",
		}, []string{"result"}),
		divergence: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kiel_assignment_divergence_total", Help: "Claims found held by another for longer than RebalanceTimeout.",
		}),
		errorsDropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kiel_errors_dropped_total", Help: "Errors that OnError was not told of, because too many waited behind a slow call of it.",
		}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kiel_rebalance_duration_seconds", Help: "Time that a stage of a rebalance took, in seconds.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"stage"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kiel_rebalances_failed_total", Help: "Rebalances that failed, by stage.",
		}, []string{"stage"}),
		drainTimeouts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kiel_consumer_drain_timeouts_total", Help: "Handlers that did not return in time after revocation or loss.",
		}),
		unclaimed: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kiel_unclaimed_partitions", Help: "Partitions that were allocated to this member and that it does not claim, by reason.",
		}, []string{"reason"}),
		info: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kiel_member_info", Help: "The member, 1 while it runs.",
		}, []string{"member", "version"}),
	}
	for _, reason := range reasons() {
		m.unclaimed.WithLabelValues(reason)
	}
	for _, result := range []string{resultOK, resultConflict, resultTimeout, resultError} {
		m.claims.WithLabelValues(result)
	}
	for _, direction := range []string{movedAssigned, movedRevoked, movedLost} {
		m.moved.WithLabelValues(direction)
	}
	err := errors.Join(
		register(reg, &m.owned), register(reg, &m.moved), register(reg, &m.claimWait), register(reg, &m.claims),
		register(reg, &m.divergence), register(reg, &m.errorsDropped), register(reg, &m.duration), register(reg, &m.failed),
		register(reg, &m.drainTimeouts), register(reg, &m.unclaimed), register(reg, &m.info),
	)
	for _, stage := range []string{stageClaim, stageRevoke, stageCallback} { // of the allocator's, if that was registered first
		m.failed.WithLabelValues(stage)
	}
	return m, err
}

// register registers *c, or replaces it by the like collector that is registered already.
func register[C prometheus.Collector](reg prometheus.Registerer, c *C) error {
	got, err := promreg.Register(reg, *c)
	*c = got
	return err
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
