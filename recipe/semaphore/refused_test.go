package semaphore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/semaphore"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The reply to the transaction that makes a lease is lost, and the server refuses to say what became of it, and to delete it. The
// lease is removed once it can be, and the next waits for that.
func TestLookIsRefusedAfterALostReply(t *testing.T) {
	for _, look := range []zktest.Op{zktest.OpSync, zktest.OpExists} {
		for _, giveUp := range []bool{false, true} {
			inWorld(t, func(w *world) {
				sem := w.semaphore("a", 1)
				ctx, cancel := context.WithCancel(w.Context())
				defer cancel()
				lost, looks, deletes := false, 1, 3
				w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
					switch {
					case !lost && makesLease(*r):
						if lost = true; giveUp {
							cancel()
						}
						return zktest.Action{LoseReply: true}
					case lost && looks > 0 && r.Op == look && !strings.Contains(r.Path, "__lock__"):
						looks--
						return zktest.Action{Err: zktest.ErrNoAuth}
					case lost && looks == 0 && deletes > 0 && r.Op == zktest.OpDelete && !strings.Contains(r.Path, "__lock__"):
						deletes--
						return zktest.Action{Err: zktest.ErrNoAuth}
					}
					return zktest.Action{}
				})
				if _, err := sem.Acquire(ctx); !errors.Is(err, session.ErrNoAuth) && (!giveUp || !errors.Is(err, context.Canceled)) {
					w.Errorf("%v: acquired: %v", look, err)
				}
				h := w.acquire(sem)
				if looks > 0 || deletes > 0 {
					w.Errorf("%v: %d looks and %d deletes were not refused", look, looks, deletes)
				}
				w.wantZnodes(1, 0)
				w.Release(h)
				w.wantZnodes(0, 0)
			})
		}
	}
}

// An ACL keeps us from reading the lease in the way: that hides whose it is, and nothing else.
func TestUnreadableLease(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(w.semaphore("holder", 1))
		w.Refuse(zktest.ErrNoAuth, func(r zktest.Request) bool { return r.Op == zktest.OpGetData && r.Path == h.Node() })
		sem := w.semaphore("a", 1)
		_, err := sem.TryAcquire(w.Context())
		if b := w.Blocked(err, semaphore.ErrNotAcquired); b.Blocker != h.Node() || b.Identifier != "" || b.Detail != "1 taken" {
			w.Errorf("TryAcquire: %v", err)
		}
		list, err := sem.LeaseHolders(w.Context())
		if err != nil || len(list) != 1 || list[0].Node != h.Node() || list[0].Identifier != "" ||
			list[0].Token != h.Token() {
			w.Errorf("LeaseHolders: %+v, %v", list, err)
		}
		a := w.acquireLater(w.Context(), sem)
		time.Sleep(time.Minute)
		if a.Ended() {
			w.Fatalf("did not wait: %v", a.Err)
		}
		w.Release(h)
		w.Release(a.Get(w))
	})
}

// A try does not wait for another call on its handle, though that waits.
func TestTryBesideAcquire(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(w.semaphore("holder", 1))
		sem := w.semaphore("a", 1)
		a := w.acquireLater(w.Context(), sem)
		time.Sleep(time.Second)
		start := time.Now()
		_, err := sem.TryAcquire(w.Within(time.Hour))
		if b := w.Blocked(err, semaphore.ErrNotAcquired); b.Path != path || b.Blocker != "" || time.Since(start) > time.Second {
			w.Errorf("after %v: %v", time.Since(start), err)
		}
		why := errors.New("enough")
		short, cancel := context.WithTimeoutCause(w.Context(), time.Second, why)
		defer cancel()
		_, err = sem.Acquire(short)
		if w.Blocked(err, why); !strings.Contains(err.Error(), "this handle") {
			w.Errorf("Acquire behind another: %v", err)
		}
		w.Release(h)
		<-a.Done
		if again, err := sem.TryAcquire(w.Context()); again != a.Value || err != nil {
			w.Errorf("%p, %v, want %p", again, err, a.Value)
		}
		w.Release(a.Value)
	})
}

// The handle has its lease already, but the inner lock is not released yet: a try gets the lease.
func TestTryWhileTheInnerLockIsReleased(t *testing.T) {
	inWorld(t, func(w *world) {
		sem := w.semaphore("a", 1)
		client, held := w.Net.Client("a"), false
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpDelete && !held {
				held = true
				client.Delay(time.Second)
			}
			return zktest.Action{}
		})
		a := w.acquireLater(w.Context(), sem)
		synctest.Wait()
		if a.Ended() || !held {
			w.Fatalf("nothing is tested: %v", a.Err)
		}
		h, err := sem.TryAcquire(w.Context())
		client.Heal()
		<-a.Done
		if a.Err != nil || err != nil || h != a.Value {
			w.Fatalf("%p, %v, want %p, %v", h, err, a.Value, a.Err)
		}
		w.Release(h)
	})
}

// A lease was lost and is not released yet: a try says so at once, for the goroutine that tries may be the one that is to release
// it.
func TestTryWithALostLease(t *testing.T) {
	inWorld(t, func(w *world) {
		sem := w.semaphore("a", 1)
		h := w.acquire(sem)
		w.LoseTrust("a", h.Incarnation())
		ctx := w.Within(time.Hour)
		start := time.Now()
		_, err := sem.TryAcquire(ctx)
		if b := w.Blocked(err, semaphore.ErrNotAcquired); b.Blocker != h.Node() || time.Since(start) > time.Second {
			w.Errorf("after %v: %v", time.Since(start), err)
		}
		w.Release(h)
		again, err := sem.TryAcquire(w.Context())
		w.Must(err)
		w.Release(again)
	})
}

// The context ends just when the inner lock was lost: that end is what is told.
func TestContextEndsBesideALoss(t *testing.T) {
	inWorld(t, func(w *world) {
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(w.Context())
		defer cancel(nil)
		removed := false
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			switch {
			case !removed && makesLease(*r):
				removed = true
				w.Check(w.Srv.Delete(lockDir + "/" + w.Srv.Children(lockDir)[0]))
			case removed && r.Op == zktest.OpDelete:
				cancel(why)
			}
			return zktest.Action{}
		})
		if _, err := w.semaphore("a", 1).Acquire(ctx); !errors.Is(err, why) {
			w.Errorf("got %v", err)
		}
		synctest.Wait()
		w.wantZnodes(0, 0)
	})
}

// Valid says at once what the context says.
func TestValid(t *testing.T) {
	inWorld(t, func(w *world) {
		sem := w.semaphore("a", 1)
		h := w.acquire(sem)
		if !h.Valid() {
			w.Error("a new hold")
		}
		w.LoseTrust("a", h.Incarnation())
		if h.Valid() {
			w.Error("after the end of trust")
		}
		w.Release(h)
		h = w.acquire(sem)
		if !h.Valid() {
			w.Error("the next hold")
		}
		w.Release(h)
		if h.Valid() {
			w.Error("released")
		}
	})
}

// Valid knows of the end of trust before the context does, and so does the handle's Held.
func TestValidBeforeItsContextEnds(t *testing.T) {
	for _, byHandle := range []bool{false, true} {
		inWorld(t, func(w *world) {
			recipetest.InvalidBeforeItsContextEnds(w, w.Net, func(s *session.Session) recipetest.Relied {
				sem := w.semaphoreIn(s, "a", 1)
				if sem.Held() {
					w.Error("held before it is acquired")
				}
				h := w.acquire(sem)
				if byHandle {
					return handle{h, sem}
				}
				return h
			})
		})
	}
}

// handle is a lease as its handle sees it.
type handle struct {
	*semaphore.Held

	sem *semaphore.Semaphore
}

func (h handle) Valid() bool { return h.sem.Held() }

// A lease that was released is not held.
func TestHeldUntilReleased(t *testing.T) {
	inWorld(t, func(w *world) {
		sem, other := w.semaphore("a", 2), w.semaphore("b", 2)
		h := w.acquire(sem)
		if !sem.Held() || other.Held() {
			w.Errorf("held: %v, by another: %v", sem.Held(), other.Held())
		}
		w.Release(h)
		if sem.Held() {
			w.Error("held after the release")
		}
	})
}
