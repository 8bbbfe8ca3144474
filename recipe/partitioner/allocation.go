package partitioner

import (
	"context"
	"slices"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/recipe/lock"
)

// Allocation is the share of the set that this member has until the context ends. A nil Allocation is over and has no items; do
// not call its Context.
type Allocation struct {
	items []string              // in the order of the partition function
	held  map[string]*lock.Held // by item
	ctx   context.Context       //nolint:containedctx // an allocation is a lifetime
	end   context.CancelCauseFunc
}

// Hold returns the allocation under which [SetPartitioner.Run] has called a function with ctx, for its Valid, Token and Node; nil
// when ctx has none. ctx may also be an allocation's own. The end of Run's context ends ctx, but not the allocation: Run gives up
// no item before the function has returned.
func Hold(ctx context.Context) *Allocation { return hold.From[*Allocation](ctx) }

// Items returns the items, in the order in which the partition function returned them. There may be none, when there are more
// members than items.
func (a *Allocation) Items() []string {
	if a == nil {
		return nil
	}
	return slices.Clone(a.items)
}

// Context is the allocation: it ends when one of the items can't be trusted to be this member's any more, or when all items are
// to be given up.
func (a *Allocation) Context() context.Context { return a.ctx }

// Valid reports whether all items may be relied on at this moment: the context has not ended, and the hold on each item's lock is
// valid. Valid costs nanoseconds for each item: call it right before each effect. The context ends a moment after Valid returns
// false.
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

// Token returns a number that is larger than the token of every earlier holder of the item; 0 when this member does not have the
// item.
func (a *Allocation) Token(item string) int64 {
	if a == nil || a.held[item] == nil {
		return 0
	}
	return a.held[item].Token()
}

// Node returns the path of our contender for the item, "" when this member does not have the item. A write that must not happen
// after the item went to another carries session.CheckOp(Node(item), -1) in its Multi.
func (a *Allocation) Node(item string) string {
	if a == nil || a.held[item] == nil {
		return ""
	}
	return a.held[item].Node()
}
