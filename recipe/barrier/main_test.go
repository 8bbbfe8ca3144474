package barrier_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	goleak.VerifyTestMain(m)
}

const path = "/app/barrier"

// world has the helpers of this package's tests.
type world struct{ *recipetest.World }

// inWorld runs a test in a bubble.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	recipetest.InWorld(t, func(w *recipetest.World) { test(&world{w}) })
}

func is(op zktest.Op) func(zktest.Request) bool { return recipetest.Is(op) }

func (w *world) barrier(s *session.Session) *barrier.Barrier {
	w.Helper()
	b, err := barrier.New(s, path, barrier.Options{})
	w.Must(err)
	return b
}

func (w *world) double(s *session.Session, clients int, identifier string) *barrier.DoubleBarrier {
	w.Helper()
	d, err := barrier.NewDouble(s, path, clients, barrier.DoubleOptions{Identifier: identifier})
	w.Must(err)
	return d
}

// call is a call that goes on in the background. Only Enter returns a member.
type call struct {
	*recipetest.Call[*barrier.Member]
}

func (c *call) ended() bool {
	synctest.Wait()
	return c.Ended()
}

func (w *world) enter(ctx context.Context, d *barrier.DoubleBarrier) *call {
	return &call{recipetest.Later(func() (*barrier.Member, error) { return d.Enter(ctx) })}
}

func (w *world) leave(ctx context.Context, m *barrier.Member) *call {
	return w.later(func() error { return m.Leave(ctx) })
}

func (w *world) later(f func() error) *call {
	return &call{recipetest.Later(func() (*barrier.Member, error) { return nil, f() })}
}

// in waits for an Enter.
func (w *world) in(c *call) *barrier.Member {
	w.Helper()
	w.ended(c, nil)
	if c.Value == nil {
		w.Fatal("not entered")
	}
	return c.Value
}

// ended waits for a call and checks its error.
func (w *world) ended(c *call, want error) {
	w.Helper()
	select {
	case <-c.Done:
	case <-time.After(2 * time.Minute):
		w.Fatalf("the call goes on; znodes:\n%s", w.Srv.Dump())
	}
	if !errors.Is(c.Err, want) {
		w.Fatalf("got %v, want %v", c.Err, want)
	}
}

// goesOn checks that a call does not end by itself.
func (w *world) goesOn(c *call) {
	w.Helper()
	time.Sleep(25 * time.Second)
	if c.ended() {
		w.Fatalf("the call has ended: %v; znodes:\n%s", c.Err, w.Srv.Dump())
	}
}

// make creates children, and remove deletes them. Hooks call both, too.
func (w *world) make(names ...string) {
	w.Helper()
	for _, name := range names {
		w.Check(w.Srv.Create(path+"/"+name, nil))
	}
}

func (w *world) remove(names ...string) {
	w.Helper()
	for _, name := range names {
		w.Check(w.Srv.Delete(path + "/" + name))
	}
}

func (w *world) wantChildren(names ...string) {
	w.Helper()
	if got := w.Srv.Children(path); !slices.Equal(got, names) {
		w.Errorf("children %q, want %q", got, names)
	}
}

func nameOf(d *barrier.DoubleBarrier) string { return d.Node()[len(path)+1:] }
