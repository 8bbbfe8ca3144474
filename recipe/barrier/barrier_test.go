package barrier_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The cases of kazoo's test_barrier.py.

func TestBarrierNotExist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if err := w.barrier(w.Session("a")).Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestBarrierExists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.barrier(w.Session("a"))
		if err := b.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		if data, stat, ok := w.Srv.Get(path); !ok || data == nil || len(data) != 0 || stat.EphemeralOwner != 0 {
			t.Errorf("%q, %+v, %v", data, stat, ok)
		}
		if err := b.Create(t.Context()); err != nil {
			t.Errorf("a second time: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		start := time.Now()
		err := b.Wait(ctx)
		blocked, ok := errors.AsType[*recipe.BlockedError](err)
		if !ok || blocked.Blocker != path || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 30*time.Second {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		if there, err := b.Remove(t.Context()); err != nil || !there {
			t.Errorf("got %v, %v", there, err)
		}
		if err := b.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestRemoveNonexistentBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if there, err := w.barrier(w.Session("a")).Remove(t.Context()); err != nil || there {
			t.Errorf("got %v, %v", there, err)
		}
	})
}

// All waiters wait until the barrier is removed, though its data changes meanwhile, links break and sessions expire.
func TestWaitersAndFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.barrier(w.Session("a"))
		if err := b.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		var calls []*call
		var sessions []*session.Session
		for _, name := range []string{"b", "cut", "away", "killed"} {
			s := w.Session(name)
			sessions = append(sessions, s)
			calls = append(calls, w.later(func() error { return w.barrier(s).Wait(t.Context()) }))
		}
		time.Sleep(time.Second)
		if err := w.Srv.Set(path, []byte("x")); err != nil {
			t.Fatal(err)
		}
		w.Net.Client("cut").Cut()
		w.Net.Client("away").Refuse()
		w.Net.Client("away").Cut()
		w.Srv.KillSession(w.ID(sessions[3]))
		for _, c := range calls {
			w.goesOn(c)
		}
		if there, err := b.Remove(t.Context()); err != nil || !there {
			t.Fatalf("%v, %v", there, err)
		}
		time.Sleep(time.Second)
		if calls[2].ended() {
			t.Error("found out without a connection")
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
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			b := w.barrier(w.Session("a"))
			lost, removed := false, false
			w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
				switch {
				case r.Op == zktest.OpCreate && r.Path == path && !lost:
					lost = true
					return tt.action
				case r.Op == zktest.OpSync && lost && tt.removed && !removed:
					removed = true
					if err := w.Srv.Delete(path); err != nil {
						t.Error(err)
					}
				}
				return zktest.Action{}
			})
			err := b.Create(t.Context())
			if !errors.Is(err, tt.want) || !lost || removed != tt.removed {
				t.Errorf("%s: got %v", what, err)
			}
			if _, _, ok := w.Srv.Get(path); ok == tt.removed {
				t.Errorf("%s: exists: %v", what, ok)
			}
		})
	}
}

// While the reply to Remove is missing another process sets the barrier up again: Remove does not remove the new one.
func TestLostRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.barrier(w.Session("a"))
		if err := w.Srv.Create(path, nil); err != nil {
			t.Fatal(err)
		}
		lost, again := false, false
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			switch {
			case r.Op == zktest.OpDelete && !lost:
				lost = true
				return zktest.Action{LoseReply: true}
			case r.Op == zktest.OpSync && lost && !again:
				again = true
				if err := w.Srv.Create(path, nil); err != nil {
					t.Error(err)
				}
			}
			return zktest.Action{}
		})
		if there, err := b.Remove(t.Context()); err != nil || !there || !again {
			t.Errorf("got %v, %v", there, err)
		}
		if _, _, ok := w.Srv.Get(path); !ok {
			t.Error("the new one was removed")
		}
		// Nobody sets the barrier up again: one delete is enough.
		w.Srv.SetHook(nil)
		w.Srv.LoseReply(2, is(zktest.OpDelete))
		if there, err := b.Remove(t.Context()); err != nil || !there {
			t.Errorf("got %v, %v", there, err)
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
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Net.Refuse()
		s := w.Session("a")
		b, d := w.barrier(s), w.double(s, 1, "a")
		recipetest.EndWithTheirContext(t, path, map[string]func(context.Context) error{
			"Create": b.Create,
			"Remove": func(ctx context.Context) error { _, err := b.Remove(ctx); return err },
			"Wait":   b.Wait,
			"Enter":  func(ctx context.Context) error { _, err := d.Enter(ctx); return err },
		})
	})
}
