package consumer

import (
	"context"
	"slices"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
)

// preparedAge is the age up to which descriptions of topics do for partitions that are about to be claimed: an opening takes
// those that are a second old (describe).
const preparedAge = 500 * time.Millisecond

// prepare readies, for each plan that gives partitions to this member, what their openings need and what does not depend on the
// claims: the descriptions of topics, the tree's ID, and connections to leaders. The former owners drain meanwhile. It returns
// when ctx ends.
func (m *membership) prepare(ctx context.Context) {
	for s := range m.allocator.Updates(ctx) {
		if ps := m.gains(s); len(ps) > 0 {
			m.fetcher.prepare(ps)
			_ = m.catalog.Refresh(ctx, preparedAge) // the openings report what goes on
			m.learnTree(ctx, s.Incarnation)
		}
	}
}

// gains returns the partitions that a plan gives to this member, and that it does not have yet.
func (m *membership) gains(s *allocator.Snapshot) []kiel.Partition {
	if !s.Joined {
		return nil
	}
	have := map[kiel.Partition]bool{}
	for _, o := range m.openings.list() {
		have[o.tp] = true
	}
	return slices.DeleteFunc(s.Mine(), func(p kiel.Partition) bool { return have[p] || m.accept(p) != nil })
}
