package bench_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/counter"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/session"
)

// ours does with this library what figures.py does with kazoo.
type ours struct {
	t   *testing.T
	all []*session.Session
	s   *session.Session

	held     *lock.Held
	waiting  sync.WaitGroup
	mu       sync.Mutex
	acquired []time.Time

	queue   *queue.Queue
	locking *queue.LockingQueue
}

var value = bytes.Repeat([]byte("v"), 100)

func newOurs(t *testing.T, zk string) *ours {
	t.Helper()
	o := &ours{t: t}
	for range partitionMembers {
		s, err := session.New([]string{zk}, session.Options{Timeout: 10 * time.Second})
		o.must(err)
		recipetest.Run(t, s)
		_, err = s.Incarnation(t.Context())
		o.must(err)
		o.all = append(o.all, s)
	}
	o.s = o.all[0]
	return o
}

func (o *ours) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

func (o *ours) sessions() []int64 {
	var ids []int64
	for _, s := range o.all {
		ids = append(ids, s.Stats().SessionID)
	}
	return ids
}

func (o *ours) do(what, path string, n int) time.Duration {
	o.t.Helper()
	do := map[string]func(ctx context.Context, path string, n int) time.Duration{
		"lock":         o.lock,
		"queue_up":     o.queueUp,
		"hand_over":    o.handOver,
		"put":          o.put,
		"fill":         o.fill,
		"get":          o.get,
		"fill_locking": o.fillLocking,
		"consume":      o.consume,
		"count":        o.count,
		"partition":    o.partition,
	}[what]
	return do(o.t.Context(), path, n)
}

func (o *ours) newLock(path string) *lock.Lock {
	o.t.Helper()
	l, err := lock.New(o.s, path, lock.Options{Identifier: "figures"})
	o.must(err)
	return l
}

func (o *ours) lock(ctx context.Context, path string, n int) time.Duration {
	l := o.newLock(path)
	once := func() {
		h, err := l.Acquire(ctx)
		o.must(err)
		o.must(h.Release(ctx))
	}
	once()
	began := time.Now()
	for range n {
		once()
	}
	return time.Since(began)
}

func (o *ours) queueUp(ctx context.Context, path string, n int) time.Duration {
	var err error
	o.held, err = o.newLock(path).Acquire(ctx)
	o.must(err)
	o.acquired = nil
	for range n {
		l := o.newLock(path)
		o.waiting.Go(func() {
			h, err := l.Acquire(ctx)
			if err != nil {
				o.t.Error(err)
				return
			}
			o.mu.Lock()
			o.acquired = append(o.acquired, time.Now())
			o.mu.Unlock()
			if err := h.Release(ctx); err != nil {
				o.t.Error(err)
			}
		})
	}
	return 0
}

func (o *ours) handOver(ctx context.Context, _ string, n int) time.Duration {
	began := time.Now()
	o.must(o.held.Release(ctx))
	o.waiting.Wait()
	if len(o.acquired) != n {
		o.t.Fatalf("%d of %d acquired", len(o.acquired), n)
	}
	return o.acquired[n-1].Sub(began)
}

func (o *ours) put(ctx context.Context, path string, n int) time.Duration {
	q, err := queue.New(o.s, path, queue.Options{})
	o.must(err)
	_, err = q.Put(ctx, value, queue.DefaultPriority)
	o.must(err)
	began := time.Now()
	for range n {
		_, err := q.Put(ctx, value, queue.DefaultPriority)
		o.must(err)
	}
	return time.Since(began)
}

func (o *ours) fill(ctx context.Context, path string, n int) time.Duration {
	var err error
	o.queue, err = queue.New(o.s, path, queue.Options{})
	o.must(err)
	_, err = o.queue.PutAll(ctx, slices.Repeat([][]byte{value}, n+1), queue.DefaultPriority)
	o.must(err)
	return o.get(ctx, path, 1)
}

func (o *ours) get(ctx context.Context, _ string, n int) time.Duration {
	began := time.Now()
	for range n {
		got, err := o.queue.TryGet(ctx)
		o.must(err)
		if !bytes.Equal(got, value) {
			o.t.Fatalf("got %q", got)
		}
	}
	return time.Since(began)
}

func (o *ours) fillLocking(ctx context.Context, path string, n int) time.Duration {
	var err error
	o.locking, err = queue.NewLocking(o.s, path, queue.Options{})
	o.must(err)
	_, err = o.locking.PutAll(ctx, slices.Repeat([][]byte{value}, n+1), queue.DefaultPriority)
	o.must(err)
	return o.consume(ctx, path, 1)
}

func (o *ours) consume(ctx context.Context, _ string, n int) time.Duration {
	began := time.Now()
	for range n {
		h, err := o.locking.Get(ctx)
		o.must(err)
		if !bytes.Equal(h.Value(), value) {
			o.t.Fatalf("got %q", h.Value())
		}
		o.must(h.Consume(ctx))
	}
	return time.Since(began)
}

func (o *ours) count(ctx context.Context, path string, n int) time.Duration {
	c, err := counter.New(o.s, path, counter.Options[int64]{})
	o.must(err)
	_, err = c.Add(ctx, 1)
	o.must(err)
	began := time.Now()
	for range n {
		_, err := c.Add(ctx, 1)
		o.must(err)
	}
	took := time.Since(began)
	got, err := c.Get(ctx)
	o.must(err)
	if got != int64(n)+1 {
		o.t.Fatalf("counted to %d", got)
	}
	return took
}

// partition takes the time boundary in milliseconds.
func (o *ours) partition(ctx context.Context, path string, boundary int) time.Duration {
	var items []string
	for i := range 11 {
		items = append(items, fmt.Sprintf("item-%02d", i))
	}
	members := make([]*partitioner.SetPartitioner, len(o.all))
	acquired := make([]time.Time, len(o.all))
	var running sync.WaitGroup
	began := time.Now()
	for i, s := range o.all {
		running.Go(func() {
			p, err := partitioner.New(s, path, items, partitioner.Options{
				Identifier:   fmt.Sprintf("member-%d", i),
				TimeBoundary: time.Duration(boundary) * time.Millisecond,
			})
			if err == nil {
				members[i] = p
				err = p.Start(ctx)
			}
			if err == nil {
				var done bool
				if done, err = p.WaitForAcquire(ctx); err == nil && !done {
					err = fmt.Errorf("member %d has not acquired", i)
				}
			}
			if err != nil {
				o.t.Error(err)
			}
			acquired[i] = time.Now()
		})
	}
	running.Wait()
	if o.t.Failed() {
		o.t.FailNow()
	}
	var owned []string
	for _, p := range members {
		owned = append(owned, p.Items()...)
	}
	slices.Sort(owned)
	if !slices.Equal(owned, items) {
		o.t.Fatalf("%q are owned", owned)
	}
	for _, p := range members {
		o.must(p.Finish(ctx))
	}
	return slices.MaxFunc(acquired, time.Time.Compare).Sub(began)
}
