package ownership

import (
	"fmt"
	"math"
	"strings"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/session"
)

// maxNamed is how many znodes an error names.
const maxNamed = 5

// persistent reports whether a znode stays until somebody deletes it: it belongs to no session, or is a container.
func persistent(stat session.Stat) bool {
	return stat.EphemeralOwner == 0 || stat.EphemeralOwner == math.MinInt64
}

// setBlocked notes whether a persistent znode stands in the place of a partition's claim.
func (l *loop) setBlocked(p *part, blocked bool) {
	if p.blocked == blocked {
		return
	}
	p.blocked = blocked
	if blocked {
		l.blocked++
		if !l.blockedNews { // where there is one there may be many
			l.blockedNews = true
			l.after(minRetry, l.reportBlocked)
		}
	} else {
		l.blocked--
		if l.blocked == 0 {
			l.recovered(troublePersistent, "")
		}
	}
	l.o.metrics.unclaimed.WithLabelValues(reasonPersistent).Set(float64(l.blocked))
}

// reportBlocked reports the partitions that are blocked, if there are any, in one error.
func (l *loop) reportBlocked() {
	l.blockedNews = false
	if l.blocked == 0 {
		return
	}
	var ids []kiel.Partition
	for id, p := range l.parts {
		if p.blocked {
			ids = append(ids, id)
		}
	}
	kiel.SortPartitions(ids)
	var names []string
	for _, id := range ids[:min(len(ids), maxNamed)] {
		names = append(names, fmt.Sprintf("%.300q", l.o.paths.owner(id)))
	}
	if more := len(ids) - maxNamed; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	l.o.metrics.claimFailed.Inc()
	l.failed(troublePersistent, "", fmt.Errorf("%w: %s: delete by hand, once nobody works on the partition", ErrPersistentClaim, strings.Join(names, ", ")))
}
