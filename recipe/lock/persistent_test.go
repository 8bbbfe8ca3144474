package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// persistent returns a handle with contenders that outlive their session.
func (w *world) persistent(s *session.Session, identifier string) *lock.Lock {
	w.Helper()
	return w.make(lock.New, s, lock.Options{Identifier: identifier, Persistent: true})
}

// The hold of a persistent contender does not end with trust or with the session.
func TestPersistentHoldOutlivesItsSession(t *testing.T) {
	inSession(t, func(w *world, s *session.Session) {
		l := w.persistent(s, "a")
		h := w.acquire(l)
		inc := h.Incarnation()
		w.Kill(s)
		<-inc.Context().Done()
		client := w.Net.Client("client")
		client.BlackHole(zktest.Both)
		time.Sleep(time.Minute)
		client.Heal()
		time.Sleep(10 * time.Second)
		if h.Context().Err() != nil || !h.Valid() || !l.Held() {
			w.Fatalf("the hold ended: %v", context.Cause(h.Context()))
		}
		if w.try(w.lock("b")) != nil {
			w.Error("another has it")
		}
		w.Release(h)
		w.wantContenders(0)
	})
}

// Somebody removes the contender, in a later session than that in which it was created.
func TestPersistentContenderRemoved(t *testing.T) {
	inSession(t, func(w *world, s *session.Session) {
		h := w.acquire(w.persistent(s, "a"))
		w.Kill(s)
		time.Sleep(10 * time.Second)
		w.Must(w.Srv.Delete(h.Node()))
		start := time.Now()
		w.Ended(h, lock.ErrLost)
		if d := time.Since(start); d > time.Second {
			w.Errorf("noticed after %v", d)
		}
		w.Release(h)
	})
}

// A persistent waiter keeps its place when its session expires.
func TestPersistentWaiterKeepsItsPlace(t *testing.T) {
	inSession(t, func(w *world, s *session.Session) {
		h := w.acquire(w.lock("holder"))
		a := w.waiterOf(w.persistent(s, "a"))
		b := w.waiter("b")
		place := w.wantContenders(3)[1]
		w.Kill(s)
		time.Sleep(10 * time.Second)
		if now := w.wantContenders(3)[1]; now != place {
			w.Errorf("%s, before %s", now, place)
		}
		w.Release(h)
		<-a.Done
		if a.Err != nil || b.Ended() {
			w.Fatalf("%v; b is through: %v", a.Err, b.Ended())
		}
		w.Release(a.Value)
		w.Release(b.Get(w))
		w.wantContenders(0)
	})
}

// The caller gives up, and the session expires before the contender could be removed.
func TestPersistentContenderIsRemovedInAnotherSession(t *testing.T) {
	inSession(t, func(w *world, s *session.Session) {
		h := w.acquire(w.lock("holder"))
		a := w.acquireLater(w.Within(5*time.Second), w.persistent(s, "a"))
		time.Sleep(time.Second)
		w.wantContenders(2)
		id := w.ID(s)
		client := w.Net.Client("client")
		client.BlackHole(zktest.Both)
		<-a.Done
		if !errors.Is(a.Err, context.DeadlineExceeded) {
			w.Error(a.Err)
		}
		time.Sleep(time.Minute)
		w.wantContenders(2)
		client.Heal()
		time.Sleep(15 * time.Second)
		if w.ID(s) == id {
			w.Error("the session did not expire: nothing was tested")
		}
		w.wantContenders(1)
		w.Release(h)
	})
}

// The reply to the create is lost. The contender is found in the same session, or removed in the next one before another is
// created.
func TestPersistentLostCreateReply(t *testing.T) {
	for _, killed := range []bool{false, true} {
		inWorld(t, func(w *world) {
			s := w.Session("client")
			l := w.persistent(s, "a")
			w.acquireAndRelease(l)
			id := w.ID(s)
			lost := false
			w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
				switch {
				case r.Op == zktest.OpCreate && !lost:
					lost = true
					return zktest.Action{LoseReply: true}
				case lost && killed && r.Op == zktest.OpSync:
					w.Srv.KillSession(id)
				}
				return zktest.Action{}
			})
			start := time.Now()
			h := w.acquire(l)
			w.wantContenders(1)
			if killed != (w.ID(s) != id) {
				w.Errorf("session is another: %v, want %v", w.ID(s) != id, killed)
			}
			if d := time.Since(start); killed && d < 2*s.Timeout() {
				w.Errorf("made another after %v, while the old session could still make one", d)
			}
			w.Release(h)
			w.wantContenders(0)
		})
	}
}

// The create of an ended session arrives late: the contender is removed, and no other is created before that.
func TestPersistentCreateThatComesLate(t *testing.T) {
	inSession(t, func(w *world, s *session.Session) {
		l := w.persistent(s, "a")
		w.acquireAndRelease(l)
		id := w.ID(s)
		var late string
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpCreate && late == "" {
				late = r.Path
				go w.Srv.KillSession(id)
				return zktest.Action{Cut: true}
			}
			return zktest.Action{}
		})
		a := w.acquireLater(w.Context(), l)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if late == "" {
			w.Fatal("nothing was tested")
		}
		w.wantContenders(0)
		w.Must(w.Srv.Create(late+"0000000009", nil))
		a.Get(w)
		if list := w.wantContenders(1); path+"/"+list[0] != a.Value.Node() {
			w.Errorf("%q, holds %s", list, a.Value.Node())
		}
		w.Release(a.Value)
	})
}

// While there is no link, a caller gives up its persistent contender and the session is told to end: the session waits until the
// contender is removed.
func TestSessionWaitsForThePersistentContenderToGo(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(w.lock("holder"))
		s, stop := w.Stoppable("a")
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		a := w.acquireLater(ctx, w.persistent(s, "a"))
		time.Sleep(time.Second)
		w.wantContenders(2)
		client := w.Unplug("a")
		cancel()
		<-a.Done
		stopped := recipetest.Background(stop)
		time.Sleep(2 * time.Second)
		client.Heal()
		<-stopped
		w.wantContenders(1)
		w.Release(h)
	})
}
