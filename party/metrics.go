package party

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/internal/promreg"
)

func newRefusals(reg prometheus.Registerer) (prometheus.Counter, error) {
	return promreg.Register(reg, prometheus.NewCounter(prometheus.CounterOpts{
		Name:        "kiel_membership_refusals_total",
		ConstLabels: promreg.LabelsOf(reg),
		Help:        "Attempts to join the group, to read its members or to leave it that ZooKeeper refused, by an ACL or a quota for instance.",
	}))
}
