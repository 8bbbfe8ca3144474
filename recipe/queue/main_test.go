package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	goleak.VerifyTestMain(m)
}

const path = "/app/queue"

// isTake matches takes.
func isTake(r zktest.Request) bool { return isMulti(r) && r.Ops[1].Op == zktest.OpCreate }

// world has the helpers of this package's tests.
type world struct{ *recipetest.World }

// inWorld runs a test in a bubble.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	recipetest.InWorld(t, func(w *recipetest.World) { test(&world{w}) })
}

func is(op zktest.Op) func(zktest.Request) bool { return recipetest.Is(op) }

// isPut matches puts.
func isPut(r zktest.Request) bool {
	return r.Op == zktest.OpMulti && len(r.Ops) > 0 && r.Ops[0].Op == zktest.OpCreate
}

// isMulti matches multis of more than one operation: proofs of life have one.
func isMulti(r zktest.Request) bool { return r.Op == zktest.OpMulti && len(r.Ops) > 1 }

func (w *world) queue(s *session.Session) *queue.Queue {
	w.Helper()
	return must[*queue.Queue](w)(queue.New(s, path, queue.Options{}))
}

func (w *world) locking(s *session.Session) *queue.LockingQueue {
	w.Helper()
	return must[*queue.LockingQueue](w)(queue.NewLocking(s, path, queue.Options{}))
}

type putter interface {
	Put(ctx context.Context, value []byte, priority int) (string, error)
	PutAll(ctx context.Context, values [][]byte, priority int) ([]string, error)
	Len(ctx context.Context) (int, error)
}

func (w *world) put(q putter, values ...string) {
	w.Helper()
	for _, v := range values {
		if _, err := q.Put(w.Context(), []byte(v), queue.DefaultPriority); err != nil {
			w.Fatal(err)
		}
	}
}

func (w *world) wantLen(q putter, want int) {
	w.Helper()
	if n, err := q.Len(w.Context()); err != nil || n != want {
		w.Errorf("length %d, %v, want %d", n, err, want)
	}
}

// wantValue checks what a Get of a Queue returned.
func (w *world) wantValue(value []byte, err error, want string, wantErr error) {
	w.Helper()
	if string(value) != want || !errors.Is(err, wantErr) {
		w.Errorf("got %q, %v, want %q, %v", value, err, want, wantErr)
	}
}

// take gets an entry of a LockingQueue.
func (w *world) take(q *queue.LockingQueue, want string) *queue.Held {
	w.Helper()
	h, err := q.Get(w.Within(time.Minute))
	if err != nil {
		w.Fatalf("get: %v; znodes:\n%s", err, w.Srv.Dump())
	}
	if string(h.Value()) != want {
		w.Errorf("got %q, want %q", h.Value(), want)
	}
	recipetest.ReleaseLater(w, h)
	return h
}

// holding puts an entry "one" into a LockingQueue, and takes it.
func (w *world) holding(s *session.Session) (*queue.LockingQueue, *queue.Held) {
	w.Helper()
	q := w.locking(s)
	w.put(q, "one")
	return q, w.take(q, "one")
}

// nothingTaken checks that no entry is held.
func (w *world) nothingTaken() {
	w.Helper()
	if left := w.Srv.Children(path + "/taken"); len(left) != 0 {
		w.Errorf("left: %q", left)
	}
}

func (w *world) consume(h *queue.Held) {
	w.Helper()
	w.Must(h.Consume(w.Context()))
}

func (w *world) wantHolds(h *queue.Held, want bool) {
	w.Helper()
	if got, err := h.Holds(w.Context()); err != nil || got != want {
		w.Errorf("holds: %v, %v, want %v", got, err, want)
	}
}

func must[T any](w *world) func(T, error) T { return recipetest.Must[T](w) }
