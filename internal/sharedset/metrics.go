package sharedset

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/internal/promreg"
)

// These are the results of an update in the metric's label. Each call counts once as ok, noop or error, and once as conflict for
// each write that came too late.
const (
	resultOK       = "ok"
	resultNoop     = "noop"
	resultConflict = "conflict"
	resultError    = "error"
)

func newUpdates(reg prometheus.Registerer) (*prometheus.CounterVec, error) {
	updates, err := promreg.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name:        "kiel_sharedset_updates_total",
		ConstLabels: promreg.LabelsOf(reg),
		Help:        "Changes of the shared set asked for, by operation and result; a conflict is a write that came too late and was made again.",
	}, []string{"op", "result"}))
	if err != nil {
		return nil, err
	}
	for _, op := range []op{opAdd, opRemove} {
		for _, result := range []string{resultOK, resultNoop, resultConflict, resultError} {
			updates.WithLabelValues(string(op), result)
		}
	}
	return updates, nil
}
