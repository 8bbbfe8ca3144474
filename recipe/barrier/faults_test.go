package barrier_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// A barrier was removed, and the server that Create reads from does not know that yet.
func TestCreateOnALaggingServer(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.barrier(w.Session("a")), w.barrier(w.Session("b"))
		w.Must(errors.Join(a.Create(w.Context()), w.Srv.Create("/stands", nil)))
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
		if there, err := a.Remove(w.Context()); err != nil || !there {
			w.Fatal(there, err)
		}
		w.Check(b.Create(w.Context()))
		if _, _, ok := w.Srv.Get(path); !ok {
			w.Error("Create returned, and no barrier exists")
		}
	})
}

// The reply to the create is lost, and the read after it is refused: our znode may exist.
func TestLookAfterALostCreateIsRefused(t *testing.T) {
	for _, look := range []zktest.Op{zktest.OpSync, zktest.OpExists} {
		inWorld(t, func(w *world) {
			d := w.double(w.Session("a"), 2, "")
			w.Must(w.Srv.Create("/app", nil))
			w.Must(w.Srv.Create(path, nil))
			creates := func(r zktest.Request) bool { return r.Op == zktest.OpCreate && r.Path == d.Node() }
			w.Steps(recipetest.LosesReply(creates), recipetest.Meets(zktest.Action{Err: zktest.ErrSystem}, is(look)))
			w.ended(w.enter(w.Context(), d), session.ErrUncertain)
			time.Sleep(5 * time.Second)
			w.wantChildren()
			w.waitsAlone(d)
		})
	}
}

// waitsAlone checks that the next Enter of a handle waits, for a minute, and counts one member.
func (w *world) waitsAlone(d *barrier.DoubleBarrier) {
	w.Helper()
	_, err := d.Enter(w.Within(time.Minute))
	if b := w.Blocked(err, context.DeadlineExceeded); !strings.HasPrefix(b.Detail, "1 of ") {
		w.Errorf("the next Enter: %v", err)
	}
}

// Somebody deletes our znode, and Enter can't tell whether the others have entered with us: the next Enter does not wait for that
// znode.
func TestEnterAfterOursWasRemoved(t *testing.T) {
	inWorld(t, func(w *world) {
		d := w.double(w.Session("a"), 2, "")
		c := w.enter(w.Context(), d)
		w.goesOn(c)
		w.atNextLook("a", func() {
			w.make(lowest, highest)
			w.remove(lowest, highest, nameOf(d))
		})
		w.make("ready")
		w.remove("ready")
		w.ended(c, session.ErrUncertain)
		w.waitsAlone(d)
	})
}

// A second Leave ends early. The znode of the lowest stays for the first one, which still waits.
func TestSecondLeaveOnlyWaits(t *testing.T) {
	inWorld(t, func(w *world) {
		d := w.double(w.Session("a"), 2, "")
		c := w.enter(w.Context(), d)
		w.goesOn(c)
		w.make(highest, "ready")
		m := w.in(c)
		first := w.leave(w.Context(), m)
		w.goesOn(first)
		second := w.leave(w.Within(time.Second), m)
		w.ended(second, context.DeadlineExceeded)
		if w.Blocked(second.Err, context.DeadlineExceeded).Blocker != path+"/"+highest {
			w.Errorf("got %v", second.Err)
		}
		w.goesOn(first)
		w.wantChildren(m.Node()[len(path)+1:], highest)
		if _, err := d.Enter(w.Context()); !errors.Is(err, barrier.ErrEntered) {
			w.Errorf("Enter beside the first Leave: %v", err)
		}
		third := w.leave(w.Context(), m)
		w.goesOn(third)
		w.remove(highest)
		w.ended(first, nil)
		w.ended(third, nil)
		w.wantChildren()
	})
}

// Valid ends with trust, and with Leave.
func TestValid(t *testing.T) {
	inWorld(t, func(w *world) {
		d := w.double(w.Session("a"), 1, "")
		for _, cutOff := range []bool{true, false} {
			m := w.in(w.enter(w.Context(), d))
			if !m.Valid() {
				w.Error("not valid in the barrier")
			}
			if cutOff {
				w.Net.Client("a").BlackHole(zktest.Both)
				<-m.Incarnation().Context().Done()
				if m.Valid() {
					w.Error("valid without trust")
				}
				w.Net.Client("a").Heal()
			}
			w.ended(w.leave(w.Context(), m), nil)
			if m.Valid() {
				w.Error("valid after Leave")
			}
		}
	})
}

// Valid and Participating are false from the end of trust, before the context ends.
func TestValidBeforeItsContextEnds(t *testing.T) {
	for _, byHandle := range []bool{false, true} {
		inWorld(t, func(w *world) {
			recipetest.InvalidBeforeItsContextEnds(w, w.Net, func(s *session.Session) recipetest.Relied {
				d := w.double(s, 1, "")
				m := w.in(w.enter(w.Context(), d))
				w.Cleanup(func() { w.ended(w.leave(context.WithoutCancel(w.Context()), m), nil) })
				if byHandle {
					return participant{m, d}
				}
				return m
			})
		})
	}
}

// participant is a member as its handle sees it.
type participant struct {
	*barrier.Member

	d *barrier.DoubleBarrier
}

func (p participant) Valid() bool { return p.d.Participating() }
