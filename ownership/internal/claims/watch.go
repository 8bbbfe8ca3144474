package claims

import (
	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/session"
)

// Watch tells which claims of ours somebody else may have changed. It costs no request while nobody does.
type Watch struct {
	paths   Paths
	watches *session.DataWatches
}

// Watch returns a Watch without claims, which ends with the incarnation.
func (w *Wire) Watch(inc *session.Incarnation) *Watch { return &Watch{w.paths, inc.DataWatches()} }

// Add watches both znodes of each claim, since they were seen.
func (w *Watch) Add(claims ...Finding) {
	paths := make(map[int64][]string)
	for _, c := range claims {
		paths[c.Seen] = append(paths[c.Seen], w.paths.Owner(c.ID), w.paths.Epoch(c.ID))
	}
	for seen, paths := range paths {
		w.watches.Add(seen, paths...)
	}
}

// End ends all watches.
func (w *Watch) End() { w.watches.End() }

// Remove ends the watch of a claim.
func (w *Watch) Remove(id kiel.Partition) { w.watches.Remove(w.paths.Owner(id), w.paths.Epoch(id)) }

// C returns a channel from which a value can be received when Changed has something to return.
func (w *Watch) C() <-chan struct{} { return w.watches.C() }

// Changed returns the partitions of claims of which a znode has changed or gone. That znode is not watched any more.
func (w *Watch) Changed() []kiel.Partition {
	var changed []kiel.Partition
	seen := make(map[kiel.Partition]bool)
	for _, path := range w.watches.Changed() {
		if id, err := partition(path); err == nil && !seen[id] {
			seen[id] = true
			changed = append(changed, id)
		}
	}
	return changed
}
