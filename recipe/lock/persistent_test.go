package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

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
		w.Srv.KillSession(w.ID(s))
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
		w.release(h)
		w.wantContenders(0)
	})
}

// Somebody removes the contender, in a later session than that in which it was created.
func TestPersistentContenderRemoved(t *testing.T) {
	inSession(t, func(w *world, s *session.Session) {
		h := w.acquire(w.persistent(s, "a"))
		w.Srv.KillSession(w.ID(s))
		time.Sleep(10 * time.Second)
		if err := w.Srv.Delete(h.Node()); err != nil {
			w.Fatal(err)
		}
		start := time.Now()
		w.ended(h, lock.ErrLost)
		if d := time.Since(start); d > time.Second {
			w.Errorf("noticed after %v", d)
		}
		w.release(h)
	})
}

// A persistent waiter keeps its place when its session expires.
func TestPersistentWaiterKeepsItsPlace(t *testing.T) {
	inSession(t, func(w *world, s *session.Session) {
		h := w.acquire(w.lock("holder"))
		a := w.acquireLater(w.Context(), w.persistent(s, "a"))
		time.Sleep(time.Second)
		b := w.acquireLater(w.Context(), w.lock("b"))
		time.Sleep(time.Second)
		place := w.wantContenders(3)[1]
		w.Srv.KillSession(w.ID(s))
		time.Sleep(10 * time.Second)
		if now := w.wantContenders(3)[1]; now != place {
			w.Errorf("%s, before %s", now, place)
		}
		w.release(h)
		<-a.done
		if a.err != nil || b.ended() {
			w.Fatalf("%v; b is through: %v", a.err, b.ended())
		}
		w.release(a.held)
		w.release(w.got(b))
		w.wantContenders(0)
	})
}

// The caller gives up, and the session expires before the contender could be removed.
func TestPersistentContenderIsRemovedInAnotherSession(t *testing.T) {
	inSession(t, func(w *world, s *session.Session) {
		h := w.acquire(w.lock("holder"))
		ctx, cancel := context.WithTimeout(w.Context(), 5*time.Second)
		defer cancel()
		a := w.acquireLater(ctx, w.persistent(s, "a"))
		time.Sleep(time.Second)
		w.wantContenders(2)
		id := w.ID(s)
		client := w.Net.Client("client")
		client.BlackHole(zktest.Both)
		<-a.done
		if !errors.Is(a.err, context.DeadlineExceeded) {
			w.Error(a.err)
		}
		time.Sleep(time.Minute)
		w.wantContenders(2)
		client.Heal()
		time.Sleep(15 * time.Second)
		if w.ID(s) == id {
			w.Error("the session did not expire: nothing was tested")
		}
		w.wantContenders(1)
		w.release(h)
	})
}

// The reply to the create is lost. The contender is found in the same session, or removed in the next one before another is
// created.
func TestPersistentLostCreateReply(t *testing.T) {
	for _, killed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
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
			w.release(h)
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
		if err := w.Srv.Create(late+"0000000009", nil); err != nil {
			w.Fatal(err)
		}
		w.got(a)
		if list := w.wantContenders(1); path+"/"+list[0] != a.held.Node() {
			w.Errorf("%q, holds %s", list, a.held.Node())
		}
		w.release(a.held)
	})
}

// While there is no link, a caller gives up its persistent contender and the session is told to end: the session waits until the
// contender is removed.
func TestSessionWaitsForThePersistentContenderToGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.acquire(w.lock("holder"))
		client := w.Net.Client("a")
		s, err := session.New([]string{zktest.VirtualAddress}, session.Options{Dial: client.Dial})
		if err != nil {
			t.Fatal(err)
		}
		stop := w.run(s)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		a := w.acquireLater(ctx, w.persistent(s, "a"))
		time.Sleep(time.Second)
		w.wantContenders(2)
		client.Refuse()
		client.Cut()
		cancel()
		<-a.done
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			stop()
		}()
		time.Sleep(2 * time.Second)
		client.Heal()
		<-stopped
		w.wantContenders(1)
		w.release(h)
	})
}
