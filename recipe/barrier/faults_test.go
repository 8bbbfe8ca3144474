package barrier_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// A barrier was removed, and the server that Create reads from does not know that yet.
func TestCreateOnALaggingServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.barrier(w.Session("a")), w.barrier(w.Session("b"))
		if err := errors.Join(a.Create(t.Context()), w.Srv.Create("/stands", nil)); err != nil {
			t.Fatal(err)
		}
		lags := true
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			switch {
			case r.Client != "b":
			case r.Op == zktest.OpSync:
				lags = false
			case lags && r.Op == zktest.OpExists && r.Path == path:
				r.Path = "/stands"
			}
			return zktest.Action{}
		})
		if there, err := a.Remove(t.Context()); err != nil || !there {
			t.Fatal(there, err)
		}
		if err := b.Create(t.Context()); err != nil {
			t.Error(err)
		}
		if _, _, ok := w.Srv.Get(path); !ok {
			t.Error("Create returned, and no barrier exists")
		}
	})
}

// The reply to the create is lost, and the read after it is refused: our znode may exist.
func TestLookAfterALostCreateIsRefused(t *testing.T) {
	for _, look := range []zktest.Op{zktest.OpSync, zktest.OpExists} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			d := w.double(w.Session("a"), 2, "")
			if err := w.Srv.Create("/app", nil); err != nil {
				t.Fatal(err)
			}
			if err := w.Srv.Create(path, nil); err != nil {
				t.Fatal(err)
			}
			lost, refused := false, false
			w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
				switch {
				case r.Op == zktest.OpCreate && r.Path == d.Node() && !lost:
					lost = true
					return zktest.Action{LoseReply: true}
				case r.Op == look && lost && !refused:
					refused = true
					return zktest.Action{Err: zktest.ErrSystem}
				}
				return zktest.Action{}
			})
			c := w.enter(t.Context(), d)
			w.ended(c, session.ErrUncertain)
			if !lost || !refused {
				t.Errorf("lost: %v, refused: %v", lost, refused)
			}
			time.Sleep(5 * time.Second)
			w.wantChildren()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := d.Enter(ctx)
			if blocked, ok := errors.AsType[*recipe.BlockedError](err); !ok || !strings.HasPrefix(blocked.Detail, "1 of ") {
				t.Errorf("the next Enter: %v", err)
			}
		})
	}
}

// Somebody deletes our znode, and Enter can't tell whether the others have entered with us: the next Enter does not wait for that
// znode.
func TestEnterAfterOursWasRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		d := w.double(w.Session("a"), 2, "")
		c := w.enter(t.Context(), d)
		w.goesOn(c)
		w.atNextLook("a", func() {
			w.make(lowest, highest)
			w.remove(lowest, highest, nameOf(d))
		})
		w.make("ready")
		w.remove("ready")
		w.ended(c, session.ErrUncertain)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := d.Enter(ctx)
		if blocked, ok := errors.AsType[*recipe.BlockedError](err); !ok || !strings.HasPrefix(blocked.Detail, "1 of ") {
			t.Errorf("the next Enter: %v", err)
		}
	})
}

// A second Leave ends early. The znode of the lowest stays for the first one, which still waits.
func TestSecondLeaveOnlyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		d := w.double(w.Session("a"), 2, "")
		c := w.enter(t.Context(), d)
		w.goesOn(c)
		w.make(highest, "ready")
		m := w.in(c)
		first := w.leave(t.Context(), m)
		w.goesOn(first)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		second := w.leave(ctx, m)
		w.ended(second, context.DeadlineExceeded)
		if blocked, ok := errors.AsType[*recipe.BlockedError](second.err); !ok || blocked.Blocker != path+"/"+highest {
			t.Errorf("got %v", second.err)
		}
		w.goesOn(first)
		w.wantChildren(m.Node()[len(path)+1:], highest)
		if _, err := d.Enter(t.Context()); !errors.Is(err, barrier.ErrEntered) {
			t.Errorf("Enter beside the first Leave: %v", err)
		}
		third := w.leave(t.Context(), m)
		w.goesOn(third)
		w.remove(highest)
		w.ended(first, nil)
		w.ended(third, nil)
		w.wantChildren()
	})
}

// Valid ends with trust, and with Leave.
func TestValid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		d := w.double(w.Session("a"), 1, "")
		for _, cutOff := range []bool{true, false} {
			m := w.in(w.enter(t.Context(), d))
			if !m.Valid() {
				t.Error("not valid in the barrier")
			}
			if cutOff {
				w.Net.Client("a").BlackHole(zktest.Both)
				<-m.Incarnation().Context().Done()
				if m.Valid() {
					t.Error("valid without trust")
				}
				w.Net.Client("a").Heal()
			}
			w.ended(w.leave(t.Context(), m), nil)
			if m.Valid() {
				t.Error("valid after Leave")
			}
		}
	})
}

// Valid is false from the end of trust, before the context ends.
func TestValidBeforeItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		recipetest.InvalidBeforeItsContextEnds(t, w.Net, func(s *session.Session) recipetest.Relied {
			m := w.in(w.enter(t.Context(), w.double(s, 1, "")))
			t.Cleanup(func() { w.ended(w.leave(context.WithoutCancel(t.Context()), m), nil) })
			return m
		})
	})
}
