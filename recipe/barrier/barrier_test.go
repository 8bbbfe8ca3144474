package barrier_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The cases of kazoo's test_barrier.py.

func TestBarrierExists(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.barrier(w.Session("a"))
		w.Must(b.Create(w.Context()))
		if data, stat, ok := w.Srv.Get(path); !ok || data == nil || len(data) != 0 || stat.EphemeralOwner != 0 {
			w.Errorf("%q, %+v, %v", data, stat, ok)
		}
		if err := b.Create(w.Context()); err != nil {
			w.Errorf("a second time: %v", err)
		}
		ctx := w.Within(30 * time.Second)
		start := time.Now()
		err := b.Wait(ctx)
		if w.Blocked(err, context.DeadlineExceeded).Blocker != path || time.Since(start) != 30*time.Second {
			w.Errorf("got %v after %v", err, time.Since(start))
		}
		w.make("child")
		if _, err := b.Remove(w.Context()); !errors.Is(err, session.ErrNotEmpty) {
			w.Errorf("with a child: %v", err)
		}
		w.remove("child")
		for _, stands := range []bool{true, false} {
			if there, err := b.Remove(w.Context()); err != nil || there != stands {
				w.Errorf("got %v, %v", there, err)
			}
			w.Check(b.Wait(w.Context()))
		}
	})
}

// All waiters wait until the barrier is removed, though its data changes meanwhile, links break and sessions expire.
func TestWaitersAndFaults(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.barrier(w.Session("a"))
		w.Must(b.Create(w.Context()))
		var calls []*call
		var sessions []*session.Session
		for _, name := range []string{"b", "cut", "away", "killed"} {
			s := w.Session(name)
			sessions = append(sessions, s)
			calls = append(calls, w.later(func() error { return w.barrier(s).Wait(w.Context()) }))
		}
		time.Sleep(time.Second)
		w.Must(w.Srv.Set(path, []byte("x")))
		w.Net.Client("cut").Cut()
		w.Unplug("away")
		w.Srv.KillSession(w.ID(sessions[3]))
		for _, c := range calls {
			w.goesOn(c)
		}
		if there, err := b.Remove(w.Context()); err != nil || !there {
			w.Fatalf("%v, %v", there, err)
		}
		time.Sleep(time.Second)
		if calls[2].ended() {
			w.Error("found out without a connection")
		}
		w.Net.Client("away").Heal()
		for _, c := range calls {
			w.ended(c, nil)
		}
	})
}

// The reply to Create is lost. Create repeats the request only if surely no barrier was set up since.
func TestLostCreate(t *testing.T) {
	for what, tt := range map[string]struct {
		action  zktest.Action
		removed bool
		want    error
	}{
		"reply":             {zktest.Action{LoseReply: true}, false, nil},
		"request":           {zktest.Action{Cut: true}, false, nil},
		"reply and removed": {zktest.Action{LoseReply: true}, true, session.ErrUncertain},
	} {
		inWorld(t, func(w *world) {
			b := w.barrier(w.Session("a"))
			steps := []recipetest.Step{
				recipetest.Meets(tt.action, func(r zktest.Request) bool { return r.Op == zktest.OpCreate && r.Path == path }),
				recipetest.Before(is(zktest.OpSync), func() { w.Check(w.Srv.Delete(path)) }),
			}
			if !tt.removed {
				steps = steps[:1]
			}
			w.Steps(steps...)
			if err := b.Create(w.Context()); !errors.Is(err, tt.want) {
				w.Errorf("%s: got %v", what, err)
			}
			if _, _, ok := w.Srv.Get(path); ok == tt.removed {
				w.Errorf("%s: exists: %v", what, ok)
			}
		})
	}
}

// While the reply to Remove is missing another process sets the barrier up again: Remove does not remove the new one.
func TestLostRemove(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.barrier(w.Session("a"))
		w.Must(w.Srv.Create(path, nil))
		w.Steps(
			recipetest.LosesReply(is(zktest.OpDelete)),
			recipetest.Before(is(zktest.OpSync), func() { w.Check(w.Srv.Create(path, nil)) }),
		)
		if there, err := b.Remove(w.Context()); err != nil || !there {
			w.Errorf("got %v, %v", there, err)
		}
		if _, _, ok := w.Srv.Get(path); !ok {
			w.Error("the new one was removed")
		}
		// Nobody sets the barrier up again: one delete is enough.
		w.Srv.SetHook(nil)
		w.Srv.LoseReply(2, is(zktest.OpDelete))
		if there, err := b.Remove(w.Context()); err != nil || !there {
			w.Errorf("got %v, %v", there, err)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	s, err := session.New([]string{"zk:2181"}, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for what, f := range map[string]func() error{
		"no session":    func() error { _, err := barrier.New(nil, path, barrier.Options{}); return err },
		"relative path": func() error { _, err := barrier.New(s, "a", barrier.Options{}); return err },
		"root":          func() error { _, err := barrier.New(s, "/", barrier.Options{}); return err },
		"no clients":    func() error { _, err := barrier.NewDouble(s, path, 0, barrier.DoubleOptions{}); return err },
		"identifier": func() error {
			_, err := barrier.NewDouble(s, path, 1, barrier.DoubleOptions{Identifier: "\xff"})
			return err
		},
	} {
		if f() == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// Without a session every call ends with its context.
func TestCallsEndWithTheirContext(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Net.Refuse()
		s := w.Session("a")
		b, d := w.barrier(s), w.double(s, 1, "a")
		recipetest.EndWithTheirContext(w, path, map[string]func(context.Context) error{
			"Create": b.Create,
			"Remove": func(ctx context.Context) error { _, err := b.Remove(ctx); return err },
			"Wait":   b.Wait,
			"Enter":  func(ctx context.Context) error { _, err := d.Enter(ctx); return err },
		})
	})
}
