package barrier_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestBasicBarrier(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.Session("a")
		d := w.double(s, 1, "café")
		if d.Participating() || d.Clients() != 1 {
			w.Error("participates")
		}
		m, err := d.Enter(w.Context())
		if err != nil || !d.Participating() {
			w.Fatal(err)
		}
		data, stat, _ := w.Srv.Get(m.Node())
		if string(data) != "café" || stat.EphemeralOwner != w.ID(s) || m.Node() != d.Node() || len(nameOf(d)) != 32 {
			w.Errorf("%s: %q, %+v", m.Node(), data, stat)
		}
		if data, stat, ok := w.Srv.Get(path + "/ready"); !ok || data == nil || len(data) != 0 || stat.EphemeralOwner != 0 || stat.Version != 0 {
			w.Errorf("ready: %q, %+v, %v", data, stat, ok)
		}
		if _, err := d.Enter(w.Context()); !errors.Is(err, barrier.ErrEntered) {
			w.Errorf("a second time: %v", err)
		}
		if err := m.Leave(w.Context()); err != nil || d.Participating() {
			w.Error(err)
		}
		if cause := context.Cause(m.Context()); !errors.Is(cause, barrier.ErrLeft) {
			w.Error(cause)
		}
		w.wantChildren()
		if m, err = d.Enter(w.Context()); err != nil {
			w.Fatal(err)
		}
		w.Must(m.Leave(w.Context()))
		w.wantChildren()
	})
}

func TestBarrierExistingParentNode(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.Session("a")
		d := w.double(s, 1, "")
		inc := w.Incarnation(s)
		if _, err := inc.Create(w.Context(), "/app", nil, session.Ephemeral); err != nil {
			w.Fatal(err)
		}
		if _, err := d.Enter(w.Context()); !errors.Is(err, session.ErrEphemeralParent) || d.Participating() {
			w.Errorf("got %v", err)
		}
	})
}

func TestBarrierExistingNode(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.Session("a")
		d := w.double(s, 1, "")
		inc := w.Incarnation(s)
		w.Must(inc.EnsurePath(w.Context(), path))
		if _, err := inc.Create(w.Context(), d.Node(), nil, session.Ephemeral); err != nil {
			w.Fatal(err)
		}
		m, err := d.Enter(w.Context())
		if err != nil || !d.Participating() {
			w.Fatal(err)
		}
		w.wantChildren(nameOf(d), "ready")
		w.Must(m.Leave(w.Context()))
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
	inWorld(t, func(w *world) {
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
		m := w.in(w.enter(w.Context(), d))
		if made != 1 {
			w.Errorf("ready was made %d times", made)
		}
		// A member that is not the lowest goes, and waits for the lowest.
		l := w.leave(w.Context(), m)
		w.goesOn(l)
		w.wantChildren(lowest)
		if len(deleted) != 2 || deleted[0] != path+"/ready" || deleted[1] != m.Node() {
			w.Errorf("deleted %q", deleted)
		}
		w.make("1") // Leave does not wait for a member that comes now
		w.remove(lowest)
		w.ended(l, nil)
		w.remove("1")

		// The lowest member stays until the highest has gone. It came first, so the other one creates ready.
		deleted, made = nil, 0
		c := w.enter(w.Context(), d)
		w.goesOn(c)
		w.make(highest)
		w.goesOn(c) // until the other one creates ready
		w.make("ready")
		m = w.in(c)
		w.goesOn(w.later(func() error { <-m.Context().Done(); return nil }))
		l = w.leave(w.Context(), m)
		w.goesOn(l)
		w.wantChildren(nameOf(d), highest)
		w.remove(highest)
		w.ended(l, nil)
		w.wantChildren()
		if made != 0 {
			w.Errorf("ready was made %d times", made)
		}
		// The third of two does not create ready again. It is the second when another has gone.
		w.make(lowest, highest)
		c = w.enter(w.Context(), d)
		w.goesOn(c)
		if made != 0 {
			w.Errorf("ready was made %d times", made)
		}
		w.remove(lowest)
		m = w.in(c)
		if made != 1 {
			w.Errorf("ready was made %d times", made)
		}
		w.remove(highest)
		w.ended(w.leave(w.Context(), m), nil)
	})
}

// The caller gives up while it waits, or while its create is under way: no znode is left, and the handle can be used again.
func TestGivingUp(t *testing.T) {
	for _, dir := range []zktest.Direction{0, zktest.ToServer, zktest.ToClient} {
		inWorld(t, func(w *world) {
			d := w.double(w.Session("a"), 2, "")
			w.atNextLook("a", func() { w.Net.Client("a").BlackHole(dir) })
			ctx := w.Within(time.Second)
			_, err := d.Enter(ctx)
			if !errors.Is(err, context.DeadlineExceeded) {
				w.Error(err)
			}
			if blocked, ok := errors.AsType[*recipe.BlockedError](err); dir == 0 && (!ok || blocked.Detail != "1 of 2 members") {
				w.Errorf("got %v", err)
			}
			w.Net.Client("a").Heal()
			time.Sleep(5 * time.Second)
			w.wantChildren()
			c := w.enter(w.Context(), d)
			w.goesOn(c)
			w.make(highest, "ready")
			m := w.in(c)
			// The caller gives up while it leaves.
			ctx = w.Within(time.Second)
			err = m.Leave(ctx)
			if blocked, ok := errors.AsType[*recipe.BlockedError](err); !ok || blocked.Blocker != path+"/"+highest {
				w.Errorf("got %v", err)
			}
			time.Sleep(time.Second)
			w.wantChildren(highest)
		})
	}
}
