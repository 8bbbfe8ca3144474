package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The connection broke before the create was carried out: the contender is created by a second request.
func TestLostCreateRequest(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lock("a")
		w.acquireAndRelease(l)
		w.Steps(recipetest.Meets(zktest.Action{Cut: true}, is(zktest.OpCreate)))
		h := w.acquire(l)
		w.wantContenders(1)
		w.Release(h)
		w.wantContenders(0)
	})
}

// The caller gives up while its create is in flight or not yet sent.
func TestGivingUpDuringCreateLeavesNothing(t *testing.T) {
	for what, dir := range map[string]zktest.Direction{"request held back": zktest.ToServer, "reply held back": zktest.ToClient} {
		for _, fate := range []string{"heal", "cut"} {
			inWorld(t, func(w *world) {
				l := w.lock("a")
				w.acquireAndRelease(l)
				client := w.Net.Client("a")
				client.BlackHole(dir)
				ctx := w.Within(time.Second)
				start := time.Now()
				_, err := l.Acquire(ctx)
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
					w.Errorf("%s, %s: %v after %v", what, fate, err, time.Since(start))
				}
				if fate == "cut" {
					client.Cut()
				}
				client.Heal()
				time.Sleep(5 * time.Second)
				w.wantContenders(0)
				w.acquireAndRelease(l)
				w.wantContenders(0)
			})
		}
	}
}

func TestGivingUpWhileWaitingLeavesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(w.lock("holder"))
		l := w.lock("a")
		for range 3 {
			ctx, cancel := context.WithTimeout(w.Context(), time.Second)
			if _, err := l.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
				w.Error(err)
			}
			cancel()
			synctest.Wait()
			w.wantContenders(1)
		}
		w.Srv.LoseReply(1, is(zktest.OpDelete))
		_, _ = l.Acquire(w.Within(time.Second))
		time.Sleep(5 * time.Second)
		w.wantContenders(1)
		w.Release(h)
	})
}

// overtakes releases a hold. Then b must acquire the lock before a, which has lost its place.
func (w *world) overtakes(h *lock.Held, b, a *acquiring) {
	w.Helper()
	w.Release(h)
	next := b.Get(w)
	time.Sleep(time.Second)
	if a.Ended() {
		w.Fatalf("a has it, too: %v", a.Err)
	}
	w.Release(next)
	w.Release(a.Get(w))
}

// A waiter whose session is killed queues up again at the end.
func TestSessionKilledWhileWaiting(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(w.lock("holder"))
		s := w.Session("a")
		a := w.waiterOf(w.lockIn(s, "a"))
		b := w.waiter("b")
		w.Kill(s)
		time.Sleep(5 * time.Second)
		w.wantContenders(3)
		w.overtakes(h, b, a)
		w.wantContenders(0)
	})
}

func TestSessionKilledWhileHolding(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.Session("a")
		l := w.lockIn(s, "a")
		h := w.acquire(l)
		w.Kill(s)
		w.Ended(h, session.ErrSessionExpired)
		w.Release(h)
		again := w.acquire(l)
		if again.Token() <= h.Token() {
			w.Errorf("token %d after %d", again.Token(), h.Token())
		}
		w.Release(again)
		w.wantContenders(0)
	})
}

// Somebody removes the contender of the holder.
func TestContenderRemovedWhileHolding(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lock("a")
		h := w.acquire(l)
		w.Must(w.Srv.Delete(h.Node()))
		start := time.Now()
		w.Ended(h, lock.ErrLost)
		if d := time.Since(start); d > time.Second {
			w.Errorf("noticed after %v", d)
		}
		w.Release(h)
		if cause := context.Cause(h.Context()); !errors.Is(cause, lock.ErrLost) {
			w.Errorf("after the release the cause is %v", cause)
		}
		w.acquireAndRelease(l)
	})
}

// Somebody changes the data of the holder's contender: that is no loss.
func TestContenderChangedWhileHolding(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(w.lock("a"))
		w.Must(w.Srv.Set(h.Node(), []byte("x")))
		time.Sleep(time.Minute)
		if h.Context().Err() != nil {
			w.Error(context.Cause(h.Context()))
		}
		w.Release(h)
		w.wantContenders(0)
	})
}

// Somebody removes the contender of a waiter. The waiter has lost its place, and must not become the holder when the contender in
// front goes.
func TestContenderRemovedWhileWaiting(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(w.lock("holder"))
		a, b := w.waiter("a"), w.waiter("b")
		w.Must(w.Srv.Delete(path + "/" + w.wantContenders(3)[1]))
		w.overtakes(h, b, a)
	})
}

// Without a watch event a waiter notices within a session timeout that it has lost its place.
func TestWaiterLooksAfterItself(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(w.lock("holder"))
		a := w.waiter("a")
		old := w.wantContenders(2)[1]
		w.Must(w.Srv.Delete(path + "/" + old))
		time.Sleep(25 * time.Second)
		if now := w.wantContenders(2)[1]; now == old {
			w.Error("it did not queue up again")
		}
		w.Release(h)
		w.Release(a.Get(w))
	})
}

// The whole directory of a waiter and a holder is deleted and created again.
func TestDirectoryDeleted(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(w.lock("holder"))
		a := w.waiter("a")
		w.Must(w.Srv.Delete("/app"))
		w.Ended(h, lock.ErrLost)
		a.Get(w)
		w.Release(h)
		w.wantContenders(1)
		w.Release(a.Value)
		w.wantContenders(0)
	})
}

// The link of a waiter breaks, and the contender in front goes meanwhile.
func TestReleasedWhileTheWaiterIsDisconnected(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(w.lock("holder"))
		a := w.waiter("a")
		mine := w.wantContenders(2)[1]
		client := w.Unplug("a")
		time.Sleep(time.Second)
		w.Release(h)
		time.Sleep(time.Second)
		if a.Ended() {
			w.Fatalf("acquired without a connection: %v", a.Err)
		}
		client.Heal()
		<-a.Done
		if a.Err != nil || a.Value.Node() != path+"/"+mine {
			w.Fatalf("%v, %v", a.Value, a.Err)
		}
		w.Release(a.Value)
	})
}

// A lock is released while the link is down: Release ends with its context, the contender is removed as soon as there is a link
// again, and the handle waits for that.
func TestReleaseWithoutALink(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lock("a")
		h := w.acquire(l)
		client := w.Unplug("a")
		ctx := w.Within(time.Second)
		if err := h.Release(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), h.Node()) {
			w.Errorf("got %v", err)
		}
		w.Ended(h, lock.ErrReleased)
		w.wantContenders(1)
		_, err := l.TryAcquire(ctx)
		if blocked, ok := errors.AsType[*recipe.BlockedError](err); !ok || blocked.Blocker != h.Node() || blocked.Identifier != "a" {
			w.Errorf("got %v", err)
		}
		client.Heal()
		again, err := l.TryAcquire(w.Context())
		w.Must(err)
		w.wantContenders(1)
		w.Release(again)
		w.wantContenders(0)
	})
}

func TestLostDeleteReply(t *testing.T) {
	for losses := 1; losses <= 3; losses++ {
		inWorld(t, func(w *world) {
			h := w.acquire(w.lock("a"))
			w.Srv.LoseReply(losses, is(zktest.OpDelete))
			w.Release(h)
			w.wantContenders(0)
		})
	}
}

// A refused delete is repeated until it is carried out.
func TestRefusedDelete(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(w.lock("a"))
		w.Refuse(zktest.ErrNoAuth, is(zktest.OpDelete))
		if err := h.Release(w.Within(10 * time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("got %v", err)
		}
		w.wantContenders(1)
		if n := w.Srv.Stats().Requests[zktest.OpDelete]; n > 20 {
			w.Errorf("%d deletes in 10 s", n)
		}
		w.Srv.SetHook(nil)
		w.Release(h)
		w.wantContenders(0)
	})
}

// The session ends while a call waits for the lock or releases it: no call hangs.
func TestSessionClosed(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(w.lock("holder"))
		s, stop := w.Stoppable("a")
		l := w.lockIn(s, "a")
		a := w.waiterOf(l)
		w.wantContenders(2)
		stop()
		<-a.Done
		if !errors.Is(a.Err, session.ErrClosed) {
			w.Errorf("got %v", a.Err)
		}
		w.wantContenders(1)
		if _, err := l.TryAcquire(w.Context()); !errors.Is(err, session.ErrClosed) {
			w.Errorf("got %v", err)
		}
		if _, err := l.Contenders(w.Context()); !errors.Is(err, session.ErrClosed) {
			w.Errorf("got %v", err)
		}
		w.Release(h)
	})
}

// Without a session every call ends with its context.
func TestCallsEndWithTheirContext(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Net.Refuse()
		l := w.lock("a")
		recipetest.EndWithTheirContext(w, path, map[string]func(context.Context) error{
			"Acquire":    func(ctx context.Context) error { _, err := l.Acquire(ctx); return err },
			"TryAcquire": func(ctx context.Context) error { _, err := l.TryAcquire(ctx); return err },
			"Contenders": func(ctx context.Context) error { _, err := l.Contenders(ctx); return err },
		})
	})
}

// A call that the server does not answer ends with its context, too.
func TestCallsEndWithTheirContextThoughTheServerIsSilent(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.Session("a")
		w.Incarnation(s)
		l := w.lockIn(s, "a")
		w.Net.Client("a").BlackHole(zktest.Both)
		recipetest.EndWithTheirContext(w, path, map[string]func(context.Context) error{
			"Acquire":    func(ctx context.Context) error { _, err := l.Acquire(ctx); return err },
			"Contenders": func(ctx context.Context) error { _, err := l.Contenders(ctx); return err },
		})
		w.Net.Client("a").Heal()
	})
}

// looksAtOwn matches a look at a contender.
func looksAtOwn(r zktest.Request) bool {
	return r.Op == zktest.OpExists && strings.HasPrefix(r.Path, path+"/")
}

// Trust ends just before Acquire returns a hold: the waiter keeps its place and returns no hold that has ended.
func TestTrustEndsJustBeforeTheHold(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.Session("a")
		inc, client := w.Incarnation(s), w.Net.Client("a")
		w.Steps(recipetest.Before(looksAtOwn, func() { client.BlackHole(zktest.ToClient) }))
		a := w.acquireLater(w.Context(), w.lockIn(s, "a"))
		<-inc.Context().Done()
		mine := w.wantContenders(1)[0]
		client.Heal()
		<-a.Done
		if a.Err != nil || a.Value.Context().Err() != nil || a.Value.Node() != path+"/"+mine {
			w.Fatalf("%+v, %v", a.Value, a.Err)
		}
		w.Release(a.Value)
	})
}

// Somebody removes the contender just before Acquire returns a hold.
func TestContenderRemovedJustBeforeTheHold(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lock("a")
		w.Steps(recipetest.Step{Match: looksAtOwn, Do: func(r *zktest.Request) zktest.Action {
			w.Check(w.Srv.Delete(r.Path))
			return zktest.Action{}
		}})
		h := w.acquire(l)
		time.Sleep(time.Second)
		if _, _, ok := w.Srv.Get(h.Node()); !ok || h.Context().Err() != nil {
			w.Errorf("holds %s, which stands: %v; ended: %v", h.Node(), ok, context.Cause(h.Context()))
		}
		w.Release(h)
	})
}
