package ownership

import (
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/ownership/internal/claims"
)

// unowned is what sweeps have seen of the partitions that the plan gives to somebody and that nobody has claimed.
type unowned struct {
	plan  *plan                        // of the last look
	names claims.Names                 // of the last look
	since map[kiel.Partition]time.Time // when it began that a look saw no claim
}

// look counts the unowned partitions among those of the plan; names are the claims listed at that time. It returns since when
// the first of them has been without a claim.
func (u *unowned) look(p *plan, names claims.Names, at time.Time) (count int, oldest time.Time) {
	if u.plan != p || !u.names.Same(names) {
		u.plan, u.names = p, names
		now := make(map[kiel.Partition]time.Time)
		for _, id := range p.planned() {
			if names.Has(id) {
				continue
			}
			now[id] = at
			if since, known := u.since[id]; known {
				now[id] = since
			}
		}
		u.since = now
	}
	for _, since := range u.since {
		if oldest.IsZero() || since.Before(oldest) {
			oldest = since
		}
	}
	return len(u.since), oldest
}

// countUnowned shows in the metrics which partitions are without an owner.
func (l *loop) countUnowned(names claims.Names, at time.Time) {
	if l.usable() && l.plan.joined {
		l.o.metrics.showUnowned(l.unowned.look(l.plan, names, at))
	}
}
