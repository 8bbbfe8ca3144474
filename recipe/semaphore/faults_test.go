package semaphore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/semaphore"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// kazoo's test_handle_session_loss: the waiter's session expires, and it gets a lease later.
func TestHandleSessionLoss(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(w.semaphore("sem1", 1))
		s := w.Session("sem2")
		sem := w.semaphoreIn(s, "sem2", 1)
		a := w.acquireLater(w.Context(), sem)
		time.Sleep(time.Second)
		before := w.Srv.Children(lockDir)
		w.Kill(s)
		time.Sleep(5 * time.Second)
		w.wantZnodes(1, 1)
		if after := w.Srv.Children(lockDir); a.Ended() || after[0] == before[0] {
			w.Fatalf("did not queue up again: %q", after)
		}
		w.Release(h)
		<-a.Done
		if a.Err != nil || w.holders(sem) != "sem2" {
			w.Fatalf("%v, holders %q", a.Err, w.holders(sem))
		}
		w.Release(a.Value)
		w.wantZnodes(0, 0)
	})
}

func TestSessionKilledWhileHolding(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.Session("a")
		sem := w.semaphoreIn(s, "a", 1)
		h := w.acquire(sem)
		w.Kill(s)
		w.Ended(h, session.ErrSessionExpired)
		w.Release(h)
		again := w.acquire(sem)
		if again.Token() <= h.Token() {
			w.Errorf("token %d after %d", again.Token(), h.Token())
		}
		w.Release(again)
		w.wantZnodes(0, 0)
	})
}

// Somebody removes the holder's lease, then the whole directory.
func TestLeaseRemovedWhileHolding(t *testing.T) {
	inWorld(t, func(w *world) {
		sem := w.semaphore("a", 1)
		for _, what := range []func(*semaphore.Held) string{func(h *semaphore.Held) string { return h.Node() }, func(*semaphore.Held) string { return "/app" }} {
			h := w.acquire(sem)
			if err := w.Srv.Set(h.Node(), []byte("x")); err != nil { // that is no loss
				w.Fatal(err)
			}
			time.Sleep(time.Minute)
			if h.Context().Err() != nil {
				w.Fatal(context.Cause(h.Context()))
			}
			w.Must(w.Srv.Delete(what(h)))
			start := time.Now()
			w.Ended(h, semaphore.ErrLost)
			if d := time.Since(start); d > time.Second {
				w.Errorf("noticed after %v", d)
			}
			w.Release(h)
		}
		w.wantZnodes(0, 0)
	})
}

// The link of a waiter breaks, and a lease becomes free meanwhile.
func TestReleasedWhileTheWaiterIsDisconnected(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(w.semaphore("holder", 1))
		a := w.waiter("a", 1)
		client := w.Unplug("a")
		time.Sleep(time.Second)
		w.Release(h)
		time.Sleep(time.Second)
		if a.Ended() {
			w.Fatalf("acquired without a connection: %v", a.Err)
		}
		client.Heal()
		w.Release(a.Get(w))
	})
}

// Requests and replies are lost: one lease is made, and none is left.
func TestLostRequestsAndReplies(t *testing.T) {
	ops := map[string]func(zktest.Request) bool{
		"create": func(r zktest.Request) bool { return r.Op == zktest.OpCreate },
		"set":    func(r zktest.Request) bool { return r.Op == zktest.OpSetData },
		"lease":  makesLease,
		"delete": func(r zktest.Request) bool { return r.Op == zktest.OpDelete },
	}
	for what, match := range ops {
		for _, executed := range []bool{true, false} {
			for losses := 1; losses <= 3; losses++ {
				inWorld(t, func(w *world) {
					if what == "set" {
						w.Must(w.Srv.Create(path, nil))
					}
					left := losses
					w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
						if left == 0 || !match(*r) {
							return zktest.Action{}
						}
						left--
						return zktest.Action{LoseReply: executed, Cut: !executed}
					})
					h := w.acquire(w.semaphore("a", 2))
					w.wantZnodes(1, 0)
					if data, _, _ := w.Srv.Get(path); string(data) != "2" {
						w.Errorf("%s: agreed on %q", what, data)
					}
					w.Release(h)
					w.wantZnodes(0, 0)
					if left == losses || left > 0 && !executed { // what was executed is not repeated
						w.Errorf("%s: %d of %d losses did not happen", what, left, losses)
					}
				})
			}
		}
	}
}

// The session ends before it is known what became of the semaphore's znode, or of its number.
func TestSessionEndsWhileAgreeing(t *testing.T) {
	for op, first := range map[zktest.Op][]byte{zktest.OpCreate: nil, zktest.OpSetData: {}} {
		inWorld(t, func(w *world) {
			if first != nil {
				w.Must(w.Srv.Create(path, first))
			}
			killed := false
			w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
				if killed || r.Op != op || r.Path != path {
					return zktest.Action{}
				}
				killed = true
				w.Srv.KillSession(r.Session)
				return zktest.Action{Cut: true}
			})
			h, err := w.semaphore("a", 1).TryAcquire(w.Context())
			if err != nil || !killed {
				w.Fatalf("%s: %v", op, err)
			}
			w.Release(h)
			w.wantZnodes(0, 0)
		})
	}
}

// The caller gives up while its lease is being made. What was made is removed.
func TestGivingUpLeavesNothing(t *testing.T) {
	for what, dir := range map[string]zktest.Direction{"request held back": zktest.ToServer, "reply held back": zktest.ToClient} {
		for _, fate := range []string{"heal", "cut"} {
			inWorld(t, func(w *world) {
				sem := w.semaphore("a", 1)
				client := w.Net.Client("a")
				w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
					if dir == zktest.ToClient && makesLease(*r) {
						client.BlackHole(dir)
					}
					if dir == zktest.ToServer && r.Op == zktest.OpGetChildren2 && r.Path == path {
						client.BlackHole(dir)
					}
					return zktest.Action{}
				})
				ctx := w.Within(time.Second)
				start := time.Now()
				_, err := sem.Acquire(ctx)
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
					w.Errorf("%s, %s: %v after %v", what, fate, err, time.Since(start))
				}
				w.Srv.SetHook(nil)
				if fate == "cut" {
					client.Cut()
				}
				client.Heal()
				time.Sleep(5 * time.Second)
				w.wantZnodes(0, 0)
				w.Release(w.acquire(sem))
				w.wantZnodes(0, 0)
			})
		}
	}
}

// Released with the link down: the caller is not kept, the lease goes as soon as there is a link again, and the handle waits for
// that.
func TestReleaseWithoutALink(t *testing.T) {
	inWorld(t, func(w *world) {
		sem := w.semaphore("a", 2)
		h := w.acquire(sem)
		client := w.Unplug("a")
		if err := h.Release(w.Within(time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("got %v", err)
		}
		w.Ended(h, semaphore.ErrReleased)
		client.Heal()
		w.Release(w.acquire(sem))
		w.wantZnodes(0, 0)
	})
}

// The first waiter's contender is removed while all leases are taken: it queues up again.
func TestInnerLockLostWhileWaiting(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(w.semaphore("holder", 1))
		a := w.waiter("a", 1)
		b := w.waiter("b", 1)
		for _, name := range w.Srv.Children(lockDir) {
			if data, _, _ := w.Srv.Get(lockDir + "/" + name); string(data) == "b'a'" {
				w.Must(w.Srv.Delete(lockDir + "/" + name))
			}
		}
		time.Sleep(time.Minute)
		w.wantZnodes(1, 2)
		w.Release(h)
		<-b.Done
		time.Sleep(time.Second)
		if b.Err != nil || a.Ended() {
			w.Fatalf("%v; a: %v", b.Err, a.Err)
		}
		w.Release(b.Value)
		w.Release(a.Get(w))
		w.wantZnodes(0, 0)
	})
}

// The semaphore's znode is deleted just before a lease is made: it is created again, and we keep our place.
func TestZnodeDeletedBeforeTheLease(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Steps(recipetest.Before(makesLease, func() { w.Check(w.Srv.Delete(path)) }))
		h := w.acquire(w.semaphore("a", 2))
		if w.Data(path) != "2" {
			w.Errorf("the znode holds %q", w.Data(path))
		}
		w.wantZnodes(1, 0)
		if _, stat, _ := w.Srv.Get(lockDir); stat.Cversion != 2 { // our contender was made and removed
			w.Errorf("%d contenders were made or removed, want one of each", stat.Cversion)
		}
		w.Release(h)
	})
}

// The semaphore's directory is deleted below a waiter.
func TestDirectoryDeleted(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(w.semaphore("holder", 1))
		a := w.waiter("a", 1)
		w.Must(w.Srv.Delete("/app"))
		w.Ended(h, semaphore.ErrLost)
		a.Get(w)
		if data, _, _ := w.Srv.Get(path); string(data) != "1" {
			w.Errorf("the znode holds %q", data)
		}
		w.Release(h)
		w.Release(a.Value)
		w.wantZnodes(0, 0)
	})
}

// The session ends while its semaphore waits: nothing hangs.
func TestCallsEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Net.Refuse()
		sem := w.semaphore("a", 1)
		recipetest.EndWithTheirContext(w, path, map[string]func(context.Context) error{
			"Acquire":      func(ctx context.Context) error { _, err := sem.Acquire(ctx); return err },
			"TryAcquire":   func(ctx context.Context) error { _, err := sem.TryAcquire(ctx); return err },
			"LeaseHolders": func(ctx context.Context) error { _, err := sem.LeaseHolders(ctx); return err },
		})
	})
}

// looksAtOwn matches a look at a lease.
func looksAtOwn(r zktest.Request) bool {
	return r.Op == zktest.OpExists && strings.HasPrefix(r.Path, path+"/")
}

// Trust ends just before the lease is handed out: no hold is given that is over.
func TestTrustEndsJustBeforeTheHold(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.Session("a")
		inc := w.Incarnation(s)
		client := w.Net.Client("a")
		w.Steps(recipetest.Before(looksAtOwn, func() { client.BlackHole(zktest.ToClient) }))
		a := w.acquireLater(w.Context(), w.semaphoreIn(s, "a", 1))
		<-inc.Context().Done()
		client.Heal()
		<-a.Done
		if a.Err != nil || a.Value.Context().Err() != nil || a.Value.Incarnation() == inc {
			w.Fatalf("%+v, %v", a.Value, a.Err)
		}
		w.wantZnodes(1, 0)
		w.Release(a.Value)
		w.wantZnodes(0, 0)
	})
}

// Trust ends just before the lease is handed out, and the caller gives up before there is trust again: the lease is removed.
func TestGivingUpJustBeforeTheHold(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.Session("a")
		inc := w.Incarnation(s)
		client := w.Net.Client("a")
		w.Steps(recipetest.Before(looksAtOwn, func() { client.BlackHole(zktest.ToClient) }))
		ctx, giveUp := context.WithCancel(w.Context())
		a := w.acquireLater(ctx, w.semaphoreIn(s, "a", 1))
		<-inc.Context().Done()
		w.wantZnodes(1, 1)
		giveUp()
		<-a.Done
		client.Heal()
		if !errors.Is(a.Err, context.Canceled) {
			w.Errorf("got %v", a.Err)
		}
		time.Sleep(5 * time.Second)
		w.wantZnodes(0, 0)
	})
}
