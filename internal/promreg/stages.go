package promreg

import "github.com/prometheus/client_golang/prometheus"

// labelStage is a label that is fixed in each collector: the allocator has collectors for its stages, the owner of claims for its
// own, and both can be in one Registerer.
const labelStage = "stage"

// RebalanceFailures returns the counter, for a set, of rebalances that failed in a stage.
func RebalanceFailures(s *Set, stage string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name:        "kiel_rebalance_errors_total",
		Help:        "Errors in rebalances, by stage; callback is one of the allocator, handler a handler or callback of the owner.",
		ConstLabels: s.ofStage(stage),
	})
}

// RebalanceDuration returns the histogram, for a set, of the times that a stage took.
func RebalanceDuration(s *Set, stage string) prometheus.Histogram {
	return prometheus.NewHistogram(Native(prometheus.HistogramOpts{
		Name:        "kiel_rebalance_duration_seconds",
		Help:        "Time that a stage of a rebalance took, in seconds: coalesce and total are until the function runs and until the mapping is applied, callback is one OnRebalance, claim and revoke are until the last partition.",
		Buckets:     []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		ConstLabels: s.ofStage(stage),
	}))
}

// ofStage returns the Labels of the set with that of a stage.
func (s *Set) ofStage(stage string) prometheus.Labels {
	labels := s.Labels()
	labels[labelStage] = stage
	return labels
}
