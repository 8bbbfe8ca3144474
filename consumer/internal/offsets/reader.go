package offsets

import (
	"context"

	"github.com/kielgo/kiel/allocfn"
)

// Reader reads committed offsets, those together that are asked for while a
// request is under way.
type Reader struct {
	store    Store
	requests chan readRequest
	done     chan struct{} // closed when Run has returned
}

type readRequest struct {
	partition allocfn.Partition
	answer    chan Stored // of 1
}

// NewReader returns a Reader; it works while its Run does.
func NewReader(store Store) *Reader {
	return &Reader{store: store, requests: make(chan readRequest), done: make(chan struct{})}
}

// Get returns what is committed for p.
func (r *Reader) Get(ctx context.Context, p allocfn.Partition) (Stored, error) {
	q := readRequest{partition: p, answer: make(chan Stored, 1)}
	select {
	case r.requests <- q:
	case <-ctx.Done():
		return Stored{}, context.Cause(ctx)
	case <-r.done:
		return Stored{}, ErrEnded
	}
	select {
	case s := <-q.answer:
		return s, s.Err
	case <-ctx.Done():
		return Stored{}, context.Cause(ctx)
	case <-r.done:
		return Stored{}, ErrEnded
	}
}

// Run reads until ctx ends.
func (r *Reader) Run(ctx context.Context) {
	defer close(r.done)
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-r.requests:
			r.answer(ctx, r.gather(q))
		}
	}
}

func (r *Reader) gather(first readRequest) []readRequest {
	requests := []readRequest{first}
	for {
		select {
		case q := <-r.requests:
			requests = append(requests, q)
		default:
			return requests
		}
	}
}

func (r *Reader) answer(ctx context.Context, requests []readRequest) {
	ps := make([]allocfn.Partition, len(requests))
	for i, q := range requests {
		ps[i] = q.partition
	}
	found, err := r.store.Fetch(ctx, ps, false)
	for _, q := range requests {
		if err != nil {
			q.answer <- Stored{Offset: -1, Err: err}
			continue
		}
		q.answer <- found[q.partition]
	}
}
