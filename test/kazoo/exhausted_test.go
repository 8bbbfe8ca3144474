package kazoo_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/session"
)

// exhaustion is a call that makes a sequential znode in a directory, and the error when its numbers have come to an end.
type exhaustion struct {
	dir  func(w *world) string
	call func(w *world, c *client) func(ctx context.Context) error
	want error
}

// exhaustions are those of the recipes with sequential znodes.
func exhaustions() map[string]exhaustion {
	all := map[string]exhaustion{
		"Queue": {
			dir:  func(w *world) string { return w.path },
			call: func(w *world, c *client) func(ctx context.Context) error { return putAndDrain(w, w.queueOf(c)) },
			want: queue.ErrSequenceExhausted,
		},
		"LockingQueue": {
			dir: func(w *world) string { return session.Join(w.path, "entries") },
			call: func(w *world, c *client) func(ctx context.Context) error {
				q := w.lockingQueue(c)
				return func(ctx context.Context) error {
					_, err := q.PutAll(ctx, [][]byte{[]byte("one"), []byte("two")}, queue.DefaultPriority) // all or none
					if err == nil {
						w.consume(w.take(q, "one"))
						w.consume(w.take(q, "two"))
					}
					return err
				}
			},
			want: queue.ErrSequenceExhausted,
		},
		"Lease": {
			dir: func(w *world) string { return w.path },
			call: func(w *world, c *client) func(ctx context.Context) error {
				l := w.lease(c, "one", 3, newClock())
				return func(ctx context.Context) error {
					h, err := l.Obtain(ctx)
					if err == nil {
						err = h.Release(ctx)
					}
					return err
				}
			},
			want: lock.ErrSequenceExhausted,
		},
		"SetPartitioner": {
			dir: func(w *world) string { return session.Join(w.path, "locks", "0") },
			call: func(w *world, c *client) func(ctx context.Context) error {
				opts := partitioner.Options{Identifier: "0", TimeBoundary: time.Second}
				p := must[*partitioner.SetPartitioner](w)(partitioner.New(c.Session, w.path, []string{"0"}, opts))
				return func(ctx context.Context) error {
					w.must(p.Start(ctx))
					_, err := p.WaitForAcquire(ctx)
					w.must(p.Finish(ctx))
					return err
				}
			},
			want: lock.ErrSequenceExhausted,
		},
	}
	for name, r := range inTurns {
		if r.line != nil {
			all[name] = exhaustion{
				dir:  r.line,
				call: func(w *world, c *client) func(ctx context.Context) error { return acquireAndRelease(r.by(w, c, "one")) },
				want: lock.ErrSequenceExhausted,
			}
		}
	}
	return all
}

func acquireAndRelease(get get) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		h, err := get(ctx)
		if err == nil {
			err = h.Release(ctx)
		}
		return err
	}
}

// putAndDrain puts two, of which the second may be refused, and takes off what was put.
func putAndDrain(w *world, q *queue.Queue) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		var put []string
		var err error
		for _, value := range []string{"one", "two"} {
			if _, err = q.Put(ctx, []byte(value), queue.DefaultPriority); err != nil {
				break
			}
			put = append(put, value)
		}
		w.wantLen(q, len(put))
		for _, value := range put {
			w.wantValue(q, value)
		}
		return err
	}
}

// The numbers of a directory come to an end, after which they order nothing: that is an error, and leaves nothing behind. In a
// new directory they begin anew. On a real server this takes 2^31 creates, days of them, so this is on zktest alone, which sticks
// at the same number.
func TestSequenceExhausted(t *testing.T) {
	t.Parallel()
	for name, e := range exhaustions() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, onVirtual)
				c, dir := w.client("client"), e.dir(w)
				call := e.call(w, c)
				w.must(call(t.Context()))
				w.create(dir)
				w.exhaust(dir)
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				w.want(call(ctx), e.want)
				w.wantNothingLeft()
				w.wantList("children", w.children(dir))
				w.remove(dir)
				w.must(e.call(w, c)(t.Context()))
			})
		})
	}
}
