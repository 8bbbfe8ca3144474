package barrier_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The caller gives up an Enter. From the moment when the create of its znode is sent the others may enter with it, as its error
// says.
func TestGivingUpEnter(t *testing.T) {
	for what, tt := range map[string]struct {
		at        func(w *world, d *barrier.DoubleBarrier, r zktest.Request) bool // our last request that the server executes
		uncertain bool
	}{
		"before the znode": {func(_ *world, _ *barrier.DoubleBarrier, r zktest.Request) bool {
			return r.Op == zktest.OpGetChildren2
		}, false},
		"while it is made": {func(_ *world, d *barrier.DoubleBarrier, r zktest.Request) bool {
			return r.Op == zktest.OpCreate && r.Path == d.Node()
		}, true},
		"while it exists": {func(w *world, d *barrier.DoubleBarrier, r zktest.Request) bool {
			_, _, exists := w.Srv.Get(d.Node())
			return exists && r.Op == zktest.OpGetChildren2
		}, true},
	} {
		inWorld(t, func(w *world) {
			w.make(lowest)
			w.remove(lowest)
			d := w.double(w.Session("a"), 2, "")
			node := d.Node()
			w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
				if r.Client == "a" && tt.at(w, d, *r) {
					w.Net.Client("a").BlackHole(zktest.Both)
				}
				return zktest.Action{}
			})
			c := w.enter(w.Within(2*time.Second), d)
			time.Sleep(time.Second)
			w.Srv.SetHook(nil)
			_, _, exists := w.Srv.Get(node)
			if exists != tt.uncertain {
				w.Fatalf("%s: it exists: %v", what, exists)
			}
			other := w.enter(w.Context(), w.double(w.Session("b"), 2, ""))
			w.ended(c, context.DeadlineExceeded)
			if got := errors.Is(c.Err, session.ErrUncertain); got != tt.uncertain {
				w.Errorf("%s: %v", what, c.Err)
			}
			if blocked, ok := errors.AsType[*recipe.BlockedError](c.Err); tt.uncertain && (!ok || !strings.HasSuffix(blocked.Detail, " of 2 members")) {
				w.Errorf("%s: %v", what, c.Err)
			}
			if other.ended() != tt.uncertain {
				w.Errorf("%s: the other has entered: %v", what, !tt.uncertain)
			}
			w.Net.Client("a").Heal()
			if !tt.uncertain {
				w.make(highest, "ready")
			}
			m := w.in(other)
			if !tt.uncertain {
				w.remove(highest)
			}
			w.ended(w.leave(w.Context(), m), nil)
			w.wantChildren()
		})
	}
}

// The caller gives up when the number is complete and ready created, and only a read of our znode is missing: the others have
// entered with us.
func TestGivingUpEnterAtTheEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		d := w.double(w.Session("a"), 1, "")
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if _, _, ready := w.Srv.Get(path + "/ready"); ready && r.Op == zktest.OpExists && r.Path == d.Node() {
				w.Net.Client("a").BlackHole(zktest.ToClient)
			}
			return zktest.Action{}
		})
		c := w.enter(w.Within(time.Second), d)
		w.ended(c, barrier.ErrLost)
		w.ended(c, context.DeadlineExceeded)
		if _, ok := errors.AsType[*recipe.BlockedError](c.Err); ok {
			w.Errorf("got %v", c.Err)
		}
		w.Srv.SetHook(nil)
		w.Net.Client("a").Heal()
		time.Sleep(10 * time.Second)
		w.wantChildren("ready")
	})
}

// These say what the other member did.
const (
	nobodyCame = "there was none"
	left       = "it entered and left"
	died       = "it entered and died"
)

// Our znode is created and goes with its session before our next read, and the other member enters with it and leaves.
func TestSessionKilledBeforeTheFirstLook(t *testing.T) {
	for _, fate := range []string{nobodyCame, left, died} {
		inWorld(t, func(w *world) {
			s := w.Session("a")
			d := w.double(s, 2, "")
			id := w.ID(s)
			var killed atomic.Bool
			w.Srv.SetHook(func(*zktest.Request) zktest.Action {
				if _, _, exists := w.Srv.Get(d.Node()); !exists || killed.Swap(true) {
					return zktest.Action{}
				}
				if fate != nobodyCame {
					w.make(highest, "ready")
				}
				if fate == left {
					w.remove("ready")
				}
				w.Srv.KillSession(id)
				if fate != nobodyCame {
					w.remove(highest)
				}
				return zktest.Action{Cut: true}
			})
			ctx, cancel := context.WithCancel(w.Context())
			defer cancel()
			c := w.enter(ctx, d)
			if fate != nobodyCame {
				w.ended(c, session.ErrUncertain)
			} else {
				w.goesOn(c)
				w.wantChildren(nameOf(d))
				cancel()
				w.ended(c, context.Canceled)
			}
			if !killed.Load() {
				w.Error("nothing was tested")
			}
		})
	}
}

// The caller gives up a Leave while it deletes ready: no other request is sent before the delete has returned. A delete that
// comes later could meet the ready of the next round.
func TestGivingUpLeave(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.in(w.enter(w.Context(), w.double(w.Session("a"), 1, "")))
		var asked atomic.Int32
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			switch {
			case r.Op == zktest.OpDelete:
				w.Net.Client("a").BlackHole(zktest.ToClient)
				asked.Add(1)
			case asked.Load() > 0 && r.Op == zktest.OpExists:
				asked.Add(1)
			}
			return zktest.Action{}
		})
		w.ended(w.leave(w.Within(time.Second), m), context.DeadlineExceeded)
		time.Sleep(time.Second)
		if n := asked.Load(); n != 1 {
			w.Errorf("%d requests", n)
		}
		w.Srv.SetHook(nil)
		w.Net.Client("a").Heal()
		time.Sleep(10 * time.Second)
		w.wantChildren()
	})
}

// An ACL hides the data of the znode that is waited for: the wait goes on without it.
func TestUnreadable(t *testing.T) {
	inWorld(t, func(w *world) {
		w.make("unreadable")
		w.Refuse(zktest.ErrNoAuth, func(r zktest.Request) bool { return r.Op == zktest.OpGetData })
		wait := w.later(func() error { return w.barrier(w.Session("a")).Wait(w.Context()) })
		m := w.in(w.enter(w.Context(), w.double(w.Session("b"), 2, "")))
		leave := w.leave(w.Context(), m)
		another := w.leave(w.Within(time.Minute), m)
		w.goesOn(wait)
		w.goesOn(leave)
		w.ended(another, context.DeadlineExceeded)
		blocked, ok := errors.AsType[*recipe.BlockedError](another.Err)
		if !ok || blocked.Blocker != path+"/unreadable" || blocked.Identifier != "" {
			w.Errorf("got %v", another.Err)
		}
		w.remove("unreadable")
		w.ended(leave, nil)
		w.Must(w.Srv.Delete(path))
		w.ended(wait, nil)
	})
}

// Just before we create ready somebody deletes our znode, and Enter begins anew, with another znode; or somebody else creates
// ready, and Enter goes in.
func TestRefusedReady(t *testing.T) {
	makesReady := func(r zktest.Request) bool { return r.Op == zktest.OpMulti && len(r.Ops) > 1 }
	for _, ours := range []bool{true, false} {
		inWorld(t, func(w *world) {
			d := w.double(w.Session("a"), 1, "")
			w.Steps(recipetest.Before(makesReady, func() {
				if ours {
					w.Check(w.Srv.Delete(d.Node()))
				} else {
					w.make("ready")
				}
			}))
			m := w.in(w.enter(w.Context(), d))
			w.wantChildren(m.Node()[len(path)+1:], "ready")
			w.ended(w.leave(w.Context(), m), nil)
			w.wantChildren()
		})
	}
}

// Somebody deletes our znode when the others have entered with us, just before our last read: the error says which znode is gone.
func TestOwnZnodeDeletedAtTheEndOfEnter(t *testing.T) {
	inWorld(t, func(w *world) {
		d := w.double(w.Session("a"), 1, "")
		node := d.Node()
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if _, _, ready := w.Srv.Get(path + "/ready"); ready && r.Op == zktest.OpExists && r.Path == node {
				w.remove(node[len(path)+1:])
			}
			return zktest.Action{}
		})
		c := w.enter(w.Context(), d)
		w.ended(c, barrier.ErrLost)
		if !strings.Contains(c.Err.Error(), node+" was deleted") {
			w.Errorf("got %v", c.Err)
		}
	})
}
