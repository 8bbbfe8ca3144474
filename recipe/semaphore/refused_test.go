package semaphore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/semaphore"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The reply to the transaction that makes a lease is lost, and the server refuses to say what became of it, and to delete it. The
// lease is removed once it can be, and the next waits for that.
func TestLookIsRefusedAfterALostReply(t *testing.T) {
	for _, look := range []zktest.Op{zktest.OpSync, zktest.OpExists} {
		for _, giveUp := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				sem := w.semaphore("a", 1)
				ctx, cancel := context.WithCancel(t.Context())
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
					t.Errorf("%v: acquired: %v", look, err)
				}
				h := w.acquire(sem)
				if looks > 0 || deletes > 0 {
					t.Errorf("%v: %d looks and %d deletes were not refused", look, looks, deletes)
				}
				w.wantZnodes(1, 0)
				w.release(h)
				w.wantZnodes(0, 0)
			})
		}
	}
}

// An ACL keeps us from reading the lease in the way: that hides whose it is, and nothing else.
func TestUnreadableLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.acquire(w.semaphore("holder", 1))
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpGetData && r.Path == h.Node() {
				return zktest.Action{Err: zktest.ErrNoAuth}
			}
			return zktest.Action{}
		})
		sem := w.semaphore("a", 1)
		_, err := sem.TryAcquire(t.Context())
		if blocked, ok := errors.AsType[*recipe.BlockedError](err); !ok || !errors.Is(err, semaphore.ErrNotAcquired) ||
			blocked.Blocker != h.Node() || blocked.Identifier != "" || blocked.Detail != "1 taken" {
			t.Errorf("TryAcquire: %v", err)
		}
		list, err := sem.LeaseHolders(t.Context())
		if err != nil || len(list) != 1 || list[0].Node != h.Node() || list[0].Identifier != "" ||
			list[0].Token != h.Token() {
			t.Errorf("LeaseHolders: %+v, %v", list, err)
		}
		a := w.acquireLater(t.Context(), sem)
		time.Sleep(time.Minute)
		if a.ended() {
			t.Fatalf("did not wait: %v", a.err)
		}
		w.release(h)
		w.release(w.got(a))
	})
}

// A try does not wait for another call on its handle, though that waits.
func TestTryBesideAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.acquire(w.semaphore("holder", 1))
		sem := w.semaphore("a", 1)
		a := w.acquireLater(t.Context(), sem)
		time.Sleep(time.Second)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := sem.TryAcquire(ctx)
		if blocked, ok := errors.AsType[*recipe.BlockedError](err); !ok || !errors.Is(err, semaphore.ErrNotAcquired) ||
			blocked.Path != path || blocked.Blocker != "" || time.Since(start) > time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		why := errors.New("enough")
		short, cancel := context.WithTimeoutCause(t.Context(), time.Second, why)
		defer cancel()
		_, err = sem.Acquire(short)
		if _, ok := errors.AsType[*recipe.BlockedError](err); !ok || !errors.Is(err, why) ||
			!strings.Contains(err.Error(), "this handle") {
			t.Errorf("Acquire behind another: %v", err)
		}
		w.release(h)
		<-a.done
		if again, err := sem.TryAcquire(t.Context()); again != a.held || err != nil {
			t.Errorf("%p, %v, want %p", again, err, a.held)
		}
		w.release(a.held)
	})
}

// The handle has its lease already, but the inner lock is not released yet: a try gets the lease.
func TestTryWhileTheInnerLockIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		sem := w.semaphore("a", 1)
		client, held := w.Net.Client("a"), false
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpDelete && !held {
				held = true
				client.Delay(time.Second)
			}
			return zktest.Action{}
		})
		a := w.acquireLater(t.Context(), sem)
		synctest.Wait()
		if a.ended() || !held {
			t.Fatalf("nothing is tested: %v", a.err)
		}
		h, err := sem.TryAcquire(t.Context())
		client.Heal()
		<-a.done
		if a.err != nil || err != nil || h != a.held {
			t.Fatalf("%p, %v, want %p, %v", h, err, a.held, a.err)
		}
		w.release(h)
	})
}

// A lease was lost and is not released yet: a try says so at once, for the goroutine that tries may be the one that is to release
// it.
func TestTryWithALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		sem := w.semaphore("a", 1)
		h := w.acquire(sem)
		w.loseTrust("a", h.Incarnation())
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		_, err := sem.TryAcquire(ctx)
		if blocked, ok := errors.AsType[*recipe.BlockedError](err); !ok || !errors.Is(err, semaphore.ErrNotAcquired) ||
			blocked.Blocker != h.Node() || time.Since(start) > time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		w.release(h)
		again, err := sem.TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.release(again)
	})
}

// The context ends just when the inner lock was lost: that end is what is told.
func TestContextEndsBesideALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		removed := false
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			switch {
			case !removed && makesLease(*r):
				removed = true
				if err := w.Srv.Delete(lockDir + "/" + w.Srv.Children(lockDir)[0]); err != nil {
					t.Error(err)
				}
			case removed && r.Op == zktest.OpDelete:
				cancel(why)
			}
			return zktest.Action{}
		})
		if _, err := w.semaphore("a", 1).Acquire(ctx); !errors.Is(err, why) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		w.wantZnodes(0, 0)
	})
}

// Valid says at once what the context says.
func TestValid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		sem := w.semaphore("a", 1)
		h := w.acquire(sem)
		if !h.Valid() {
			t.Error("a new hold")
		}
		w.loseTrust("a", h.Incarnation())
		if h.Valid() {
			t.Error("after the end of trust")
		}
		w.release(h)
		h = w.acquire(sem)
		if !h.Valid() {
			t.Error("the next hold")
		}
		w.release(h)
		if h.Valid() {
			t.Error("released")
		}
	})
}

// Valid knows of the end of trust before the context does, and so does the handle's Held.
func TestValidBeforeItsContextEnds(t *testing.T) {
	for _, byHandle := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			recipetest.InvalidBeforeItsContextEnds(t, w.Net, func(s *session.Session) recipetest.Relied {
				sem := w.semaphoreIn(s, "a", 1)
				if sem.Held() {
					t.Error("held before it is acquired")
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
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		sem := w.semaphore("a", 2)
		other := w.semaphore("b", 2)
		h := w.acquire(sem)
		if !sem.Held() || other.Held() {
			t.Errorf("held: %v, by another: %v", sem.Held(), other.Held())
		}
		w.release(h)
		if sem.Held() {
			t.Error("held after the release")
		}
	})
}
