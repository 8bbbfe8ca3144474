package consumer

import (
	"context"

	"github.com/kielgo/kiel/allocfn"
)

// lookups reads committed offsets, those together that are asked for while a
// request is under way.
type lookups struct {
	store    offsetStore
	requests chan lookupRequest
	done     chan struct{} // closed when run has returned
}

type lookupRequest struct {
	partition allocfn.Partition
	answer    chan stored // of 1
}

func newLookups(store offsetStore) *lookups {
	return &lookups{store: store, requests: make(chan lookupRequest), done: make(chan struct{})}
}

// get returns what is committed for p.
func (l *lookups) get(ctx context.Context, p allocfn.Partition) (stored, error) {
	q := lookupRequest{partition: p, answer: make(chan stored, 1)}
	select {
	case l.requests <- q:
	case <-ctx.Done():
		return stored{}, context.Cause(ctx)
	case <-l.done:
		return stored{}, errEnded
	}
	select {
	case s := <-q.answer:
		return s, s.err
	case <-ctx.Done():
		return stored{}, context.Cause(ctx)
	case <-l.done:
		return stored{}, errEnded
	}
}

func (l *lookups) run(ctx context.Context) {
	defer close(l.done)
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-l.requests:
			l.answer(ctx, l.gather(q))
		}
	}
}

func (l *lookups) gather(first lookupRequest) []lookupRequest {
	requests := []lookupRequest{first}
	for {
		select {
		case q := <-l.requests:
			requests = append(requests, q)
		default:
			return requests
		}
	}
}

func (l *lookups) answer(ctx context.Context, requests []lookupRequest) {
	ps := make([]allocfn.Partition, len(requests))
	for i, q := range requests {
		ps[i] = q.partition
	}
	found, err := l.store.fetch(ctx, ps)
	for _, q := range requests {
		if err != nil {
			q.answer <- stored{offset: -1, err: err}
			continue
		}
		q.answer <- found[q.partition]
	}
}
