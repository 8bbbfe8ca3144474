package kazoo_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/session"
)

// putter is what both kinds of queue can do.
type putter interface {
	Put(ctx context.Context, value []byte, priority int) (string, error)
	PutAll(ctx context.Context, values [][]byte, priority int) ([]string, error)
	Len(ctx context.Context) (int, error)
}

func (w *world) queue() *queue.Queue {
	w.Helper()
	return w.queueOf(w.client("client"))
}

func (w *world) queueOf(c *client) *queue.Queue {
	w.Helper()
	return must[*queue.Queue](w)(queue.New(c.Session, w.path, queue.Options{}))
}

func (w *world) lockingQueue(c *client) *queue.LockingQueue {
	w.Helper()
	return must[*queue.LockingQueue](w)(queue.NewLocking(c.Session, w.path, queue.Options{}))
}

func (w *world) put(q putter, value string, priority int) {
	w.Helper()
	must[string](w)(q.Put(w.Context(), []byte(value), priority))
}

func (w *world) putFour(q putter) {
	w.Helper()
	w.put(q, "four", 101)
	w.put(q, "one", 0)
	w.put(q, "two", 0)
	w.put(q, "three", 10)
}

func (w *world) wantLen(q putter, want int) {
	w.Helper()
	if n := must[int](w)(q.Len(w.Context())); n != want {
		w.Errorf("length %d, want %d", n, want)
	}
}

// wantValue takes one off a Queue.
func (w *world) wantValue(q *queue.Queue, want string) {
	w.Helper()
	if got := string(must[[]byte](w)(q.TryGet(w.Context()))); got != want {
		w.Errorf("got %q, want %q", got, want)
	}
}

// validate refuses priorities; what is a TypeError in Python does not compile.
func (w *world) validate(q putter) {
	w.Helper()
	for _, priority := range []int{-100, -1, 1000, 100000} {
		_, err := q.Put(w.Context(), []byte("one"), priority)
		w.want(err, queue.ErrPriority)
		_, err = q.PutAll(w.Context(), [][]byte{[]byte("one")}, priority)
		w.want(err, queue.ErrPriority)
	}
	w.wantLen(q, 0)
	w.wantList("children", w.children(w.path))
}

func TestQueue_Validation(t *testing.T) {
	both(t, func(w *world) { w.validate(w.queue()) })
}

func TestQueue_EmptyQueue(t *testing.T) {
	both(t, func(w *world) {
		q := w.queue()
		w.wantLen(q, 0)
		_, err := q.TryGet(w.Context())
		w.want(err, queue.ErrEmpty)
		w.wantLen(q, 0)
	})
}

func TestQueue_Queue(t *testing.T) {
	both(t, func(w *world) {
		q := w.queue()
		for _, v := range []string{"one", "two", "three"} {
			w.put(q, v, queue.DefaultPriority)
		}
		w.wantLen(q, 3)
		for _, v := range []string{"one", "two", "three"} {
			w.wantValue(q, v)
		}
		w.wantLen(q, 0)
	})
}

func TestQueue_Priority(t *testing.T) {
	both(t, func(w *world) {
		q := w.queue()
		w.putFour(q)
		for _, v := range []string{"one", "two", "three", "four"} {
			w.wantValue(q, v)
		}
	})
}

// take gets an entry of a LockingQueue.
func (w *world) take(q *queue.LockingQueue, want string) *queue.Held {
	w.Helper()
	h := acquire(w, q.Get)
	if got := string(h.Value()); got != want {
		w.Errorf("got %q, want %q", got, want)
	}
	return h
}

func (w *world) consume(h *queue.Held) {
	w.Helper()
	w.must(h.Consume(w.Context()))
}

// wantHolds asks the server whether an entry is held.
func (w *world) wantHolds(h *queue.Held, want bool) {
	w.Helper()
	if got := must[bool](w)(h.Holds(w.Context())); got != want {
		w.Errorf("holds: %v, want %v", got, want)
	}
}

func TestLockingQueue_QueueValidation(t *testing.T) {
	both(t, func(w *world) { w.validate(w.lockingQueue(w.client("client"))) })
}

func TestLockingQueue_EmptyQueue(t *testing.T) {
	both(t, func(w *world) {
		q := w.lockingQueue(w.client("client"))
		w.wantLen(q, 0)
		_, err := q.TryGet(w.Context())
		w.want(err, queue.ErrEmpty)
		w.wantLen(q, 0)
	})
}

// TestLockingQueue_Queue lacks kazoo's calls before the first get: here only the entry that Get has returned can be consumed or
// held.
func TestLockingQueue_Queue(t *testing.T) {
	both(t, func(w *world) {
		q := w.lockingQueue(w.client("client"))
		w.put(q, "one", queue.DefaultPriority)
		must[[]string](w)(q.PutAll(w.Context(), [][]byte{[]byte("two"), []byte("three")}, queue.DefaultPriority))
		w.wantLen(q, 3)
		for _, v := range []string{"one", "two", "three"} {
			h := w.take(q, v)
			w.wantHolds(h, true)
			if string(h.Value()) != v {
				w.Errorf("a second time it is %q", h.Value())
			}
			w.consume(h)
			w.wantHolds(h, false)
			w.consume(h) // a second time: the same outcome, and no other entry
		}
		w.wantLen(q, 0)
		w.wantList("taken", w.children(session.Join(w.path, "taken")))
	})
}

func TestLockingQueue_Consume(t *testing.T) {
	both(t, func(w *world) {
		q := w.lockingQueue(w.client("client"))
		w.put(q, "one", queue.DefaultPriority)
		h := w.take(q, "one")
		w.consume(h)
		w.want(context.Cause(h.Context()), queue.ErrConsumed)
		w.wantLen(q, 0)
		_, err := q.TryGet(w.Context())
		w.want(err, queue.ErrEmpty)
	})
}

func TestLockingQueue_Release(t *testing.T) {
	both(t, func(w *world) {
		q := w.lockingQueue(w.client("client"))
		w.put(q, "one", queue.DefaultPriority)
		h := w.take(q, "one")
		w.wantHolds(h, true)
		release(w, h)
		w.wantHolds(h, false)
		w.want(h.Consume(w.Context()), queue.ErrReleased)
		h = w.take(q, "one")
		w.consume(h)
		w.want(h.Release(w.Context()), queue.ErrConsumed)
		w.wantLen(q, 0)
	})
}

func TestLockingQueue_HoldsLock(t *testing.T) {
	both(t, func(w *world) {
		q := w.lockingQueue(w.client("client"))
		w.put(q, "one", queue.DefaultPriority)
		h := w.take(q, "one")
		w.wantHolds(h, true)
		w.consume(h)
		w.wantHolds(h, false)
	})
}

func TestLockingQueue_Priority(t *testing.T) {
	both(t, func(w *world) {
		q := w.lockingQueue(w.client("client"))
		w.putFour(q)
		for _, v := range []string{"one", "two", "three", "four"} {
			w.consume(w.take(q, v))
		}
	})
}

// Three want the one entry: one gets it.
func TestLockingQueue_ConcurrentExecution(t *testing.T) {
	both(t, func(w *world) {
		c := w.client("client")
		ctx, cancel := context.WithCancel(w.Context())
		var calls []*call[*queue.Held]
		for range 3 {
			calls = append(calls, acquireLater(ctx, w, w.lockingQueue(c).Get))
		}
		w.put(w.lockingQueue(c), "one", queue.DefaultPriority)
		w.until("somebody has it", func() bool { return calls[0].ended() || calls[1].ended() || calls[2].ended() })
		for _, c := range calls {
			if !c.ended() {
				w.goOn(c)
			}
		}
		cancel()
		got := 0
		for _, c := range calls {
			w.until("the call's end", c.ended)
			if c.err == nil {
				got++
				continue
			}
			w.want(c.err, context.Canceled)
			if blocked, ok := errors.AsType[*recipe.BlockedError](c.err); ok && blocked.Taken != 1 {
				w.Errorf("%d are taken", blocked.Taken)
			}
		}
		if got != 1 {
			w.Errorf("%d got it", got)
		}
	})
}
