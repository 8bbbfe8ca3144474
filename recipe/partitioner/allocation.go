package partitioner

import (
	"context"
	"slices"

	"github.com/kielgo/kiel/recipe/lock"
)

// Allocation is a share of the set that is ours until its context ends. Nil is one that is over, and has
// no items; it must not be asked for its context.
type Allocation struct {
	items []string
	held  map[string]*lock.Held
	ctx   context.Context //nolint:containedctx // an allocation is a lifetime
	end   context.CancelCauseFunc
}

type holdKey struct{}

// Hold returns the allocation under which a function was called by [SetPartitioner.Run] with ctx, for its Valid,
// Token and Node; nil when ctx has none. ctx may also be an allocation's own. The end of Run's context ends ctx, but not
// the allocation: nothing is given up before the function has returned.
func Hold(ctx context.Context) *Allocation {
	a, _ := ctx.Value(holdKey{}).(*Allocation)
	return a
}

// Items returns the items, in the order in which the partition function gave them. There may
// be none: more members than items.
func (a *Allocation) Items() []string {
	if a == nil {
		return nil
	}
	return slices.Clone(a.items)
}

// Context is the allocation: it ends when one of the items can't be trusted to be ours any
// more, or all are to be given up.
func (a *Allocation) Context() context.Context { return a.ctx }

// Valid reports whether the allocation may be relied on at this moment: its context has not ended, and the lock of each
// item is trusted to be ours. It costs nanoseconds for each item: call it right before each effect. A context ends
// a moment after that has come to be false.
func (a *Allocation) Valid() bool {
	if a == nil || a.ctx.Err() != nil {
		return false
	}
	for _, h := range a.held {
		if !h.Valid() {
			return false
		}
	}
	return true
}

// Token returns a number that is larger than that of every holder of the item before; 0 when
// the item is not ours.
func (a *Allocation) Token(item string) int64 {
	if a == nil || a.held[item] == nil {
		return 0
	}
	return a.held[item].Token()
}

// Node returns the path of our contender for the item, "" when it is not ours. A write that
// must not happen after the item went to another carries session.CheckOp(Node(item), -1) in
// its Multi.
func (a *Allocation) Node(item string) string {
	if a == nil || a.held[item] == nil {
		return ""
	}
	return a.held[item].Node()
}
