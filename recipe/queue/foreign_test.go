package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The event that a hold was deleted comes late: its Consume deletes neither the next hold nor the entry.
func TestConsumeBeforeTheNews(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.locking(w.Session("a")), w.locking(w.Session("b"))
		w.put(a, "one")
		h := w.take(a, "one")
		w.Net.Client("a").Delay(500 * time.Millisecond)
		w.Must(w.Srv.Delete(taken))
		other := w.take(b, "one")
		if err := h.Consume(w.Context()); !errors.Is(err, queue.ErrLost) {
			w.Errorf("consume: %v", err)
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
		inWorld(t, func(w *world) {
			q := w.locking(w.Session("a"))
			w.put(q, "one")
			w.Steps(recipetest.LosesReply(isMulti), recipetest.Meets(zktest.Action{Err: code}, is(look)))
			if h, err := q.TryGet(w.Context()); err == nil {
				w.Errorf("%v: got %v", look, h)
			}
			time.Sleep(5 * time.Second)
			w.nothingTaken()
			w.consume(w.take(q, "one"))
		})
	}
}

// The reply to a consume is lost and the read after it refused: the hold does not stay.
func TestConsumeThatCannotBeSeen(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.locking(w.Session("a")), w.locking(w.Session("b"))
		w.put(a, "one")
		h := w.take(a, "one")
		w.Steps(recipetest.Meets(zktest.Action{Cut: true}, isMulti), recipetest.Meets(zktest.Action{Err: zktest.ErrNoAuth}, is(zktest.OpGetData)))
		if err := h.Consume(w.Context()); !errors.Is(err, session.ErrUncertain) {
			w.Errorf("consume: %v", err)
		}
		w.consume(w.take(b, "one"))
	})
}

// A hold is not valid from the moment that its session is not trusted.
func TestValid(t *testing.T) {
	inWorld(t, func(w *world) {
		q := w.locking(w.Session("a"))
		w.put(q, "one", "two")
		h := w.take(q, "one")
		if !h.Valid() {
			w.Error("not valid")
		}
		w.Release(h)
		if h.Valid() {
			w.Error("valid after Release")
		}
		h = w.take(q, "one")
		w.Net.Client("a").BlackHole(zktest.Both)
		<-h.Context().Done()
		if h.Valid() {
			w.Error("valid without trust")
		}
		w.Net.Client("a").Heal()
		_ = h.Release(context.WithoutCancel(w.Context()))
	})
}

// Valid is false from the end of trust, before the context ends.
func TestValidBeforeItsContextEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		recipetest.InvalidBeforeItsContextEnds(w, w.Net, func(s *session.Session) recipetest.Relied {
			q := w.locking(s)
			w.put(q, "one")
			return w.take(q, "one")
		})
	})
}
