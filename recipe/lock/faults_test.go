package lock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
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
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := w.lock("a")
		w.acquireAndRelease(l)
		cut := true
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			now := cut && r.Op == zktest.OpCreate
			cut = cut && !now
			return zktest.Action{Cut: now}
		})
		h := w.acquire(l)
		w.wantContenders(1)
		w.release(h)
		w.wantContenders(0)
	})
}

// The caller gives up while its create is in flight or not yet sent.
func TestGivingUpDuringCreateLeavesNothing(t *testing.T) {
	for what, dir := range map[string]zktest.Direction{"request held back": zktest.ToServer, "reply held back": zktest.ToClient} {
		for _, fate := range []string{"heal", "cut"} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				l := w.lock("a")
				w.acquireAndRelease(l)
				client := w.Net.Client("a")
				client.BlackHole(dir)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				_, err := l.Acquire(ctx)
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
					t.Errorf("%s, %s: %v after %v", what, fate, err, time.Since(start))
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
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.acquire(w.lock("holder"))
		l := w.lock("a")
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := l.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			cancel()
			synctest.Wait()
			w.wantContenders(1)
		}
		w.Srv.LoseReply(1, is(zktest.OpDelete))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _ = l.Acquire(ctx)
		time.Sleep(5 * time.Second)
		w.wantContenders(1)
		w.release(h)
	})
}

// overtakes releases a hold. Then b must acquire the lock before a, which has lost its place.
func (w *world) overtakes(h *lock.Held, b, a *acquiring) {
	w.Helper()
	w.release(h)
	next := w.got(b)
	time.Sleep(time.Second)
	if a.ended() {
		w.Fatalf("a has it, too: %v", a.err)
	}
	w.release(next)
	w.release(w.got(a))
}

// A waiter whose session is killed queues up again at the end.
func TestSessionKilledWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.acquire(w.lock("holder"))
		s := w.Session("a")
		a := w.acquireLater(t.Context(), w.lockIn(s, "a"))
		time.Sleep(time.Second)
		b := w.acquireLater(t.Context(), w.lock("b"))
		time.Sleep(time.Second)
		w.Srv.KillSession(w.ID(s))
		time.Sleep(5 * time.Second)
		w.wantContenders(3)
		w.overtakes(h, b, a)
		w.wantContenders(0)
	})
}

func TestSessionKilledWhileHolding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.Session("a")
		l := w.lockIn(s, "a")
		h := w.acquire(l)
		w.Srv.KillSession(w.ID(s))
		w.ended(h, session.ErrSessionExpired)
		w.release(h)
		again := w.acquire(l)
		if again.Token() <= h.Token() {
			t.Errorf("token %d after %d", again.Token(), h.Token())
		}
		w.release(again)
		w.wantContenders(0)
	})
}

// Somebody removes the contender of the holder.
func TestContenderRemovedWhileHolding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := w.lock("a")
		h := w.acquire(l)
		if err := w.Srv.Delete(h.Node()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		w.ended(h, lock.ErrLost)
		if d := time.Since(start); d > time.Second {
			t.Errorf("noticed after %v", d)
		}
		w.release(h)
		if cause := context.Cause(h.Context()); !errors.Is(cause, lock.ErrLost) {
			t.Errorf("after the release the cause is %v", cause)
		}
		w.acquireAndRelease(l)
	})
}

// Somebody changes the data of the holder's contender: that is no loss.
func TestContenderChangedWhileHolding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.acquire(w.lock("a"))
		if err := w.Srv.Set(h.Node(), []byte("x")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if h.Context().Err() != nil {
			t.Error(context.Cause(h.Context()))
		}
		w.release(h)
		w.wantContenders(0)
	})
}

// Somebody removes the contender of a waiter. The waiter has lost its place, and must not become the holder when the contender in
// front goes.
func TestContenderRemovedWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.acquire(w.lock("holder"))
		a := w.acquireLater(t.Context(), w.lock("a"))
		time.Sleep(time.Second)
		b := w.acquireLater(t.Context(), w.lock("b"))
		time.Sleep(time.Second)
		if err := w.Srv.Delete(path + "/" + w.wantContenders(3)[1]); err != nil {
			t.Fatal(err)
		}
		w.overtakes(h, b, a)
	})
}

// Without a watch event a waiter notices within a session timeout that it has lost its place.
func TestWaiterLooksAfterItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.acquire(w.lock("holder"))
		a := w.acquireLater(t.Context(), w.lock("a"))
		time.Sleep(time.Second)
		old := w.wantContenders(2)[1]
		if err := w.Srv.Delete(path + "/" + old); err != nil {
			t.Fatal(err)
		}
		time.Sleep(25 * time.Second)
		if now := w.wantContenders(2)[1]; now == old {
			t.Error("it did not queue up again")
		}
		w.release(h)
		w.release(w.got(a))
	})
}

// The whole directory of a waiter and a holder is deleted and created again.
func TestDirectoryDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.acquire(w.lock("holder"))
		a := w.acquireLater(t.Context(), w.lock("a"))
		time.Sleep(time.Second)
		if err := w.Srv.Delete("/app"); err != nil {
			t.Fatal(err)
		}
		w.ended(h, lock.ErrLost)
		w.got(a)
		w.release(h)
		w.wantContenders(1)
		w.release(a.held)
		w.wantContenders(0)
	})
}

// The link of a waiter breaks, and the contender in front goes meanwhile.
func TestReleasedWhileTheWaiterIsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.acquire(w.lock("holder"))
		a := w.acquireLater(t.Context(), w.lock("a"))
		time.Sleep(time.Second)
		mine := w.wantContenders(2)[1]
		client := w.Net.Client("a")
		client.Refuse()
		client.Cut()
		time.Sleep(time.Second)
		w.release(h)
		time.Sleep(time.Second)
		if a.ended() {
			t.Fatalf("acquired without a connection: %v", a.err)
		}
		client.Heal()
		<-a.done
		if a.err != nil || a.held.Node() != path+"/"+mine {
			t.Fatalf("%v, %v", a.held, a.err)
		}
		w.release(a.held)
	})
}

// loseTrust ends trust for a moment and waits for the consequences.
func (w *world) loseTrust(client string, inc *session.Incarnation) {
	w.Helper()
	recipetest.LoseTrust(w, w.Net.Client(client), inc)
	time.Sleep(5 * time.Second)
}

// A lock is released while the link is down: Release ends with its context, the contender is removed as soon as there is a link
// again, and the handle waits for that.
func TestReleaseWithoutALink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := w.lock("a")
		h := w.acquire(l)
		client := w.Net.Client("a")
		client.Refuse()
		client.Cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.Release(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), h.Node()) {
			t.Errorf("got %v", err)
		}
		w.ended(h, lock.ErrReleased)
		w.wantContenders(1)
		_, err := l.TryAcquire(ctx)
		if blocked, ok := errors.AsType[*recipe.BlockedError](err); !ok || blocked.Blocker != h.Node() || blocked.Identifier != "a" {
			t.Errorf("got %v", err)
		}
		client.Heal()
		again, err := l.TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.wantContenders(1)
		w.release(again)
		w.wantContenders(0)
	})
}

func TestLostDeleteReply(t *testing.T) {
	for losses := 1; losses <= 3; losses++ {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			h := w.acquire(w.lock("a"))
			w.Srv.LoseReply(losses, is(zktest.OpDelete))
			w.release(h)
			w.wantContenders(0)
		})
	}
}

// A refused delete is repeated until it is carried out.
func TestRefusedDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.acquire(w.lock("a"))
		var refuse atomic.Bool
		refuse.Store(true)
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if refuse.Load() && r.Op == zktest.OpDelete {
				return zktest.Action{Err: zktest.ErrNoAuth}
			}
			return zktest.Action{}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := h.Release(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		w.wantContenders(1)
		if n := w.Srv.Stats().Requests[zktest.OpDelete]; n > 20 {
			t.Errorf("%d deletes in 10 s", n)
		}
		refuse.Store(false)
		w.release(h)
		w.wantContenders(0)
	})
}

// The session ends while a call waits for the lock or releases it: no call hangs.
func TestSessionClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.acquire(w.lock("holder"))
		s, err := session.New([]string{zktest.VirtualAddress}, session.Options{Dial: w.Net.Client("a").Dial})
		if err != nil {
			t.Fatal(err)
		}
		stop := w.run(s)
		l := w.lockIn(s, "a")
		a := w.acquireLater(t.Context(), l)
		time.Sleep(time.Second)
		w.wantContenders(2)
		stop()
		<-a.done
		if !errors.Is(a.err, session.ErrClosed) {
			t.Errorf("got %v", a.err)
		}
		w.wantContenders(1)
		if _, err := l.TryAcquire(t.Context()); !errors.Is(err, session.ErrClosed) {
			t.Errorf("got %v", err)
		}
		if _, err := l.Contenders(t.Context()); !errors.Is(err, session.ErrClosed) {
			t.Errorf("got %v", err)
		}
		w.release(h)
	})
}

// Without a session every call ends with its context.
func TestCallsEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Net.Refuse()
		l := w.lock("a")
		recipetest.EndWithTheirContext(t, path, map[string]func(context.Context) error{
			"Acquire":    func(ctx context.Context) error { _, err := l.Acquire(ctx); return err },
			"TryAcquire": func(ctx context.Context) error { _, err := l.TryAcquire(ctx); return err },
			"Contenders": func(ctx context.Context) error { _, err := l.Contenders(ctx); return err },
		})
	})
}

// A call that the server does not answer ends with its context, too.
func TestCallsEndWithTheirContextThoughTheServerIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.Session("a")
		if _, err := s.Incarnation(t.Context()); err != nil {
			t.Fatal(err)
		}
		l := w.lockIn(s, "a")
		w.Net.Client("a").BlackHole(zktest.Both)
		recipetest.EndWithTheirContext(t, path, map[string]func(context.Context) error{
			"Acquire":    func(ctx context.Context) error { _, err := l.Acquire(ctx); return err },
			"Contenders": func(ctx context.Context) error { _, err := l.Contenders(ctx); return err },
		})
		w.Net.Client("a").Heal()
	})
}

// Trust ends just before Acquire returns a hold: the waiter keeps its place and returns no hold that has ended.
func TestTrustEndsJustBeforeTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.Session("a")
		inc, err := s.Incarnation(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		client := w.Net.Client("a")
		looks := 0
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpExists && strings.HasPrefix(r.Path, path+"/") {
				if looks++; looks == 1 {
					client.BlackHole(zktest.ToClient)
				}
			}
			return zktest.Action{}
		})
		a := w.acquireLater(t.Context(), w.lockIn(s, "a"))
		<-inc.Context().Done()
		mine := w.wantContenders(1)[0]
		client.Heal()
		<-a.done
		if a.err != nil || a.held.Context().Err() != nil || a.held.Node() != path+"/"+mine {
			t.Fatalf("%+v, %v", a.held, a.err)
		}
		w.release(a.held)
	})
}

// Somebody removes the contender just before Acquire returns a hold.
func TestContenderRemovedJustBeforeTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := w.lock("a")
		looks := 0
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpExists && strings.HasPrefix(r.Path, path+"/") {
				if looks++; looks == 1 {
					if err := w.Srv.Delete(r.Path); err != nil {
						t.Error(err)
					}
				}
			}
			return zktest.Action{}
		})
		h := w.acquire(l)
		time.Sleep(time.Second)
		if _, _, ok := w.Srv.Get(h.Node()); !ok || h.Context().Err() != nil {
			t.Errorf("holds %s, which stands: %v; ended: %v", h.Node(), ok, context.Cause(h.Context()))
		}
		w.release(h)
	})
}
