package barrier_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestBasicBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.Session("a")
		d := w.double(s, 1, "café")
		if d.Participating() || d.Clients() != 1 {
			t.Error("participates")
		}
		m, err := d.Enter(t.Context())
		if err != nil || !d.Participating() {
			t.Fatal(err)
		}
		data, stat, _ := w.Srv.Get(m.Node())
		if string(data) != "café" || stat.EphemeralOwner != w.ID(s) || m.Node() != d.Node() || len(nameOf(d)) != 32 {
			t.Errorf("%s: %q, %+v", m.Node(), data, stat)
		}
		if data, stat, ok := w.Srv.Get(path + "/ready"); !ok || data == nil || len(data) != 0 || stat.EphemeralOwner != 0 {
			t.Errorf("ready: %q, %+v, %v", data, stat, ok)
		}
		if _, err := d.Enter(t.Context()); !errors.Is(err, barrier.ErrEntered) {
			t.Errorf("a second time: %v", err)
		}
		if err := m.Leave(t.Context()); err != nil || d.Participating() {
			t.Error(err)
		}
		if cause := context.Cause(m.Context()); !errors.Is(cause, barrier.ErrLeft) {
			t.Error(cause)
		}
		w.wantChildren()
		if m, err = d.Enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := m.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.wantChildren()
	})
}

func TestTwoBarrier(t *testing.T)   { together(t, 2) }
func TestThreeBarrier(t *testing.T) { together(t, 3) }

// together makes n members enter and leave, three times.
func together(t *testing.T, n int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.Session("a")
		doubles := make([]*barrier.DoubleBarrier, n)
		for i := range doubles {
			doubles[i] = w.double(s, n, "")
			s = w.Session("of its own " + string(rune('0'+i)))
		}
		for range 3 {
			var calls []*call
			for i, d := range doubles {
				for _, c := range calls {
					w.goesOn(c)
				}
				if i > 0 && doubles[0].Participating() {
					t.Error("participates alone")
				}
				calls = append(calls, w.enter(t.Context(), d))
			}
			var leaving []*call
			for _, c := range calls {
				w.in(c)
			}
			for i, c := range calls {
				if !doubles[i].Participating() {
					t.Error("does not participate")
				}
				for _, l := range leaving {
					w.goesOn(l)
				}
				leaving = append(leaving, w.leave(t.Context(), c.m))
			}
			for _, l := range leaving {
				w.ended(l, nil)
			}
			w.wantChildren()
		}
	})
}

func TestBarrierExistingParentNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.Session("a")
		d := w.double(s, 1, "")
		inc, err := s.Incarnation(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := inc.Create(t.Context(), "/app", nil, session.Ephemeral); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Enter(t.Context()); !errors.Is(err, session.ErrEphemeralParent) || d.Participating() {
			t.Errorf("got %v", err)
		}
	})
}

func TestBarrierExistingNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.Session("a")
		d := w.double(s, 1, "")
		inc, err := s.Incarnation(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := inc.EnsurePath(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		if _, err := inc.Create(t.Context(), d.Node(), nil, session.Ephemeral); err != nil {
			t.Fatal(err)
		}
		m, err := d.Enter(t.Context())
		if err != nil || !d.Participating() {
			t.Fatal(err)
		}
		w.wantChildren(nameOf(d), "ready")
		if err := m.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.wantChildren()
	})
}

const (
	lowest  = "00000000000000000000000000000000"
	highest = "ffffffffffffffffffffffffffffffff"
)

// Only the member that completes the number creates ready, and Leave deletes ready before our own znode. In kazoo's order of
// leaving the lowest stays until the others have gone.
func TestReadyAndTheOrderOfLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var deleted []string
		made := 0
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpDelete {
				deleted = append(deleted, r.Path)
			}
			if r.Op == zktest.OpMulti {
				for _, op := range r.Ops {
					if op.Op == zktest.OpCreate && op.Path == path+"/ready" {
						made++
					}
				}
			}
			return zktest.Action{}
		})
		d := w.double(w.Session("a"), 2, "")
		w.make(lowest)
		m := w.in(w.enter(t.Context(), d))
		if made != 1 {
			t.Errorf("ready was made %d times", made)
		}
		// A member that is not the lowest goes, and waits for the lowest.
		l := w.leave(t.Context(), m)
		w.goesOn(l)
		w.wantChildren(lowest)
		if len(deleted) != 2 || deleted[0] != path+"/ready" || deleted[1] != m.Node() {
			t.Errorf("deleted %q", deleted)
		}
		w.make("1") // Leave does not wait for a member that comes now
		w.remove(lowest)
		w.ended(l, nil)
		w.remove("1")

		// The lowest member stays until the highest has gone. It came first, so the other one creates ready.
		deleted, made = nil, 0
		c := w.enter(t.Context(), d)
		w.goesOn(c)
		w.make(highest)
		w.goesOn(c) // until the other one creates ready
		w.make("ready")
		m = w.in(c)
		w.goesOn(w.later(func() error { <-m.Context().Done(); return nil }))
		l = w.leave(t.Context(), m)
		w.goesOn(l)
		w.wantChildren(nameOf(d), highest)
		w.remove(highest)
		w.ended(l, nil)
		w.wantChildren()
		if made != 0 {
			t.Errorf("ready was made %d times", made)
		}
		// The third of two does not create ready again. It is the second when another has gone.
		w.make(lowest, highest)
		c = w.enter(t.Context(), d)
		w.goesOn(c)
		if made != 0 {
			t.Errorf("ready was made %d times", made)
		}
		w.remove(lowest)
		m = w.in(c)
		if made != 1 {
			t.Errorf("ready was made %d times", made)
		}
		w.remove(highest)
		w.ended(w.leave(t.Context(), m), nil)
	})
}

// The caller gives up while it waits, or while its create is under way: no znode is left, and the handle can be used again.
func TestGivingUp(t *testing.T) {
	for _, dir := range []zktest.Direction{0, zktest.ToServer, zktest.ToClient} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			d := w.double(w.Session("a"), 2, "")
			w.atNextLook("a", func() { w.Net.Client("a").BlackHole(dir) })
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := d.Enter(ctx)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if blocked, ok := errors.AsType[*recipe.BlockedError](err); dir == 0 && (!ok || blocked.Detail != "1 of 2 members") {
				t.Errorf("got %v", err)
			}
			w.Net.Client("a").Heal()
			time.Sleep(5 * time.Second)
			w.wantChildren()
			c := w.enter(t.Context(), d)
			w.goesOn(c)
			w.make(highest, "ready")
			m := w.in(c)
			// The caller gives up while it leaves.
			ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err = m.Leave(ctx)
			if blocked, ok := errors.AsType[*recipe.BlockedError](err); !ok || blocked.Blocker != path+"/"+highest {
				t.Errorf("got %v", err)
			}
			time.Sleep(time.Second)
			w.wantChildren(highest)
		})
	}
}
