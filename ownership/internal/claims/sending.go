package claims

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/kielgo/kiel/session"
)

const (
	// BatchSize is of how many items the operations travel in one multi.
	BatchSize = 100
	// underWay is how many multis of one sending are under way at a time.
	underWay = 8
)

// sending sends the operations of many items in few multis. Its functions may be called at the same time.
type sending[T any] struct {
	inc *session.Incarnation
	// ops returns those of the items that are still to be sent, and the operations of each, as many for the one as for the other.
	// It is called right before they are sent.
	ops func(items []T) ([]T, []session.Op)
	// done is called with the results of an item's operations that were applied.
	done func(item T, results []session.OpResult)
	// refused is called with the operation of an item that was refused, so that nothing of the multi was applied. It returns true
	// if it has put that right: then the item is sent again. The others are in any case.
	refused func(ctx context.Context, item T, op int, err error) bool
	// failed is called with any other error that has ended a multi.
	failed func(items []T, err error)
	// sent is called when these were called for some items; nil for nothing.
	sent func()
}

// send sends the operations of items.
func (s sending[T]) send(ctx context.Context, items []T) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, underWay)
	for batch := range slices.Chunk(items, BatchSize) {
		slots <- struct{}{}
		wg.Go(func() {
			s.sendBatch(ctx, batch)
			if s.sent != nil {
				s.sent()
			}
			<-slots
		})
	}
	wg.Wait()
}

// sendBatch sends items in one multi. If that is too large, it is halved.
func (s sending[T]) sendBatch(ctx context.Context, items []T) {
	for len(items) > 0 {
		var ops []session.Op
		if items, ops = s.ops(items); len(items) == 0 {
			return
		}
		each := len(ops) / len(items)
		results, err := s.inc.Multi(ctx, ops...)
		if err == nil {
			for i, item := range items {
				s.done(item, results[i*each:(i+1)*each])
			}
			return
		}
		refused, ok := errors.AsType[*session.MultiError](err)
		switch {
		case ok && refused.Index >= 0 && refused.Index < len(ops):
			if i := refused.Index / each; !s.refused(ctx, items[i], refused.Index%each, err) {
				items = slices.Delete(slices.Clone(items), i, i+1)
			}
		case len(items) > 1 && (errors.Is(err, session.ErrEphemeralBudget) || errors.Is(err, session.ErrTooLarge)):
			half := len(items) / 2
			s.sendBatch(ctx, items[:half])
			items = items[half:]
		default:
			s.failed(items, err)
			return
		}
	}
}
