package queue_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The event that a hold was deleted comes late: its Consume deletes neither the next hold nor the entry.
func TestConsumeBeforeTheNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.locking(w.Session("a")), w.locking(w.Session("b"))
		w.put(a, "one")
		h := w.take(a, "one")
		w.Net.Client("a").Delay(500 * time.Millisecond)
		if err := w.Srv.Delete(taken); err != nil {
			t.Fatal(err)
		}
		other := w.take(b, "one")
		if err := h.Consume(t.Context()); !errors.Is(err, queue.ErrLost) {
			t.Errorf("consume: %v", err)
		}
		w.Net.Client("a").Heal()
		w.wantHolds(other, true)
		w.consume(other)
		w.wantLen(a, 0)
	})
}

// The reply to a take is lost and the read after it refused: the hold does not stay.
func TestTakeThatCannotBeSeen(t *testing.T) {
	for look, code := range map[zktest.Op]zktest.Error{
		zktest.OpSync:    zktest.ErrSystem,
		zktest.OpGetData: zktest.ErrNoAuth,
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			q := w.locking(w.Session("a"))
			w.put(q, "one")
			lost, refused := false, false
			w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
				switch {
				case !lost && isMulti(*r):
					lost = true
					return zktest.Action{LoseReply: true}
				case lost && !refused && r.Op == look:
					refused = true
					return zktest.Action{Err: code}
				}
				return zktest.Action{}
			})
			h, err := q.TryGet(t.Context())
			if err == nil || !refused {
				t.Errorf("%v: got %v, refused: %v", look, h, refused)
			}
			time.Sleep(5 * time.Second)
			if left := w.Srv.Children(path + "/taken"); len(left) != 0 {
				t.Errorf("%v: left %q", look, left)
			}
			w.consume(w.take(q, "one"))
		})
	}
}

// The reply to a consume is lost and the read after it refused: the hold does not stay.
func TestConsumeThatCannotBeSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.locking(w.Session("a")), w.locking(w.Session("b"))
		w.put(a, "one")
		h := w.take(a, "one")
		cut, refused := false, false
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			switch {
			case !cut && isMulti(*r):
				cut = true
				return zktest.Action{Cut: true}
			case cut && !refused && r.Op == zktest.OpGetData:
				refused = true
				return zktest.Action{Err: zktest.ErrNoAuth}
			}
			return zktest.Action{}
		})
		if err := h.Consume(t.Context()); !errors.Is(err, session.ErrUncertain) || !refused {
			t.Errorf("consume: %v, refused: %v", err, refused)
		}
		w.consume(w.take(b, "one"))
	})
}

// A hold is not valid from the moment that its session is not trusted.
func TestValid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		q := w.locking(w.Session("a"))
		w.put(q, "one", "two")
		h := w.take(q, "one")
		if !h.Valid() {
			t.Error("not valid")
		}
		w.release(h)
		if h.Valid() {
			t.Error("valid after Release")
		}
		h = w.take(q, "one")
		w.Net.Client("a").BlackHole(zktest.Both)
		<-h.Context().Done()
		if h.Valid() {
			t.Error("valid without trust")
		}
		w.Net.Client("a").Heal()
		_ = h.Release(context.WithoutCancel(t.Context()))
	})
}

// Valid is false from the end of trust, before the context ends.
func TestValidBeforeItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		recipetest.InvalidBeforeItsContextEnds(t, w.Net, func(s *session.Session) recipetest.Relied {
			q := w.locking(s)
			w.put(q, "one")
			return w.take(q, "one")
		})
	})
}
