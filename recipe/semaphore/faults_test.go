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

// kazoo's test_handle_session_loss: the waiter's session expires, and it gets a lease later.
func TestHandleSessionLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.acquire(w.semaphore("sem1", 1))
		s := w.Session("sem2")
		sem := w.semaphoreIn(s, "sem2", 1)
		a := w.acquireLater(t.Context(), sem)
		time.Sleep(time.Second)
		before := w.Srv.Children(lockDir)
		w.Srv.KillSession(w.ID(s))
		time.Sleep(5 * time.Second)
		w.wantZnodes(1, 1)
		if after := w.Srv.Children(lockDir); a.ended() || after[0] == before[0] {
			t.Fatalf("did not queue up again: %q", after)
		}
		w.release(h)
		<-a.done
		if a.err != nil || w.holders(sem) != "sem2" {
			t.Fatalf("%v, holders %q", a.err, w.holders(sem))
		}
		w.release(a.held)
		w.wantZnodes(0, 0)
	})
}

func TestSessionKilledWhileHolding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.Session("a")
		sem := w.semaphoreIn(s, "a", 1)
		h := w.acquire(sem)
		w.Srv.KillSession(w.ID(s))
		w.ended(h, session.ErrSessionExpired)
		w.release(h)
		again := w.acquire(sem)
		if again.Token() <= h.Token() {
			t.Errorf("token %d after %d", again.Token(), h.Token())
		}
		w.release(again)
		w.wantZnodes(0, 0)
	})
}

// Somebody removes the holder's lease, then the whole directory.
func TestLeaseRemovedWhileHolding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		sem := w.semaphore("a", 1)
		for _, what := range []func(*semaphore.Held) string{func(h *semaphore.Held) string { return h.Node() }, func(*semaphore.Held) string { return "/app" }} {
			h := w.acquire(sem)
			if err := w.Srv.Set(h.Node(), []byte("x")); err != nil { // that is no loss
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if h.Context().Err() != nil {
				t.Fatal(context.Cause(h.Context()))
			}
			if err := w.Srv.Delete(what(h)); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			w.ended(h, semaphore.ErrLost)
			if d := time.Since(start); d > time.Second {
				t.Errorf("noticed after %v", d)
			}
			w.release(h)
		}
		w.wantZnodes(0, 0)
	})
}

// loseTrust ends trust for a moment, and lets what that begins come to rest.
func (w *world) loseTrust(client string, inc *session.Incarnation) {
	w.Helper()
	recipetest.LoseTrust(w, w.Net.Client(client), inc)
	time.Sleep(5 * time.Second)
}

// The link of a waiter breaks, and a lease becomes free meanwhile.
func TestReleasedWhileTheWaiterIsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.acquire(w.semaphore("holder", 1))
		a := w.acquireLater(t.Context(), w.semaphore("a", 1))
		time.Sleep(time.Second)
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
		w.release(w.got(a))
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
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					if what == "set" {
						if err := w.Srv.Create(path, nil); err != nil {
							t.Fatal(err)
						}
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
						t.Errorf("%s: agreed on %q", what, data)
					}
					w.release(h)
					w.wantZnodes(0, 0)
					if left == losses || left > 0 && !executed { // what was executed is not repeated
						t.Errorf("%s: %d of %d losses did not happen", what, left, losses)
					}
				})
			}
		}
	}
}

// The session ends before it is known what became of the semaphore's znode, or of its number.
func TestSessionEndsWhileAgreeing(t *testing.T) {
	for op, first := range map[zktest.Op][]byte{zktest.OpCreate: nil, zktest.OpSetData: {}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			if first != nil {
				if err := w.Srv.Create(path, first); err != nil {
					t.Fatal(err)
				}
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
			h, err := w.semaphore("a", 1).TryAcquire(t.Context())
			if err != nil || !killed {
				t.Fatalf("%s: %v", op, err)
			}
			w.release(h)
			w.wantZnodes(0, 0)
		})
	}
}

// The caller gives up while its lease is being made. What was made is removed.
func TestGivingUpLeavesNothing(t *testing.T) {
	for what, dir := range map[string]zktest.Direction{"request held back": zktest.ToServer, "reply held back": zktest.ToClient} {
		for _, fate := range []string{"heal", "cut"} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
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
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				_, err := sem.Acquire(ctx)
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
					t.Errorf("%s, %s: %v after %v", what, fate, err, time.Since(start))
				}
				w.Srv.SetHook(nil)
				if fate == "cut" {
					client.Cut()
				}
				client.Heal()
				time.Sleep(5 * time.Second)
				w.wantZnodes(0, 0)
				w.release(w.acquire(sem))
				w.wantZnodes(0, 0)
			})
		}
	}
}

// Released with the link down: the caller is not kept, the lease goes as soon as there is a link again, and the handle waits for
// that.
func TestReleaseWithoutALink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		sem := w.semaphore("a", 2)
		h := w.acquire(sem)
		client := w.Net.Client("a")
		client.Refuse()
		client.Cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.Release(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		w.ended(h, semaphore.ErrReleased)
		client.Heal()
		w.release(w.acquire(sem))
		w.wantZnodes(0, 0)
	})
}

// The first waiter's contender is removed while all leases are taken: it queues up again.
func TestInnerLockLostWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.acquire(w.semaphore("holder", 1))
		a := w.acquireLater(t.Context(), w.semaphore("a", 1))
		time.Sleep(time.Second)
		b := w.acquireLater(t.Context(), w.semaphore("b", 1))
		time.Sleep(time.Second)
		for _, name := range w.Srv.Children(lockDir) {
			if data, _, _ := w.Srv.Get(lockDir + "/" + name); string(data) == "b'a'" {
				if err := w.Srv.Delete(lockDir + "/" + name); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(time.Minute)
		w.wantZnodes(1, 2)
		w.release(h)
		<-b.done
		time.Sleep(time.Second)
		if b.err != nil || a.ended() {
			t.Fatalf("%v; a: %v", b.err, a.err)
		}
		w.release(b.held)
		w.release(w.got(a))
		w.wantZnodes(0, 0)
	})
}

// The semaphore's directory is deleted below a waiter.
func TestDirectoryDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.acquire(w.semaphore("holder", 1))
		a := w.acquireLater(t.Context(), w.semaphore("a", 1))
		time.Sleep(time.Second)
		if err := w.Srv.Delete("/app"); err != nil {
			t.Fatal(err)
		}
		w.ended(h, semaphore.ErrLost)
		w.got(a)
		if data, _, _ := w.Srv.Get(path); string(data) != "1" {
			t.Errorf("the znode holds %q", data)
		}
		w.release(h)
		w.release(a.held)
		w.wantZnodes(0, 0)
	})
}

// The session ends while its semaphore waits: nothing hangs.
func TestCallsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Net.Refuse()
		sem := w.semaphore("a", 1)
		recipetest.EndWithTheirContext(t, path, map[string]func(context.Context) error{
			"Acquire":      func(ctx context.Context) error { _, err := sem.Acquire(ctx); return err },
			"TryAcquire":   func(ctx context.Context) error { _, err := sem.TryAcquire(ctx); return err },
			"LeaseHolders": func(ctx context.Context) error { _, err := sem.LeaseHolders(ctx); return err },
		})
	})
}

// Trust ends just before the lease is handed out: no hold is given that is over.
func TestTrustEndsJustBeforeTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.Session("a")
		inc, err := s.Incarnation(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		client := w.Net.Client("a")
		looked := false
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpExists && strings.HasPrefix(r.Path, path+"/") && !looked {
				looked = true
				client.BlackHole(zktest.ToClient)
			}
			return zktest.Action{}
		})
		a := w.acquireLater(t.Context(), w.semaphoreIn(s, "a", 1))
		<-inc.Context().Done()
		client.Heal()
		<-a.done
		if a.err != nil || a.held.Context().Err() != nil || a.held.Incarnation() == inc {
			t.Fatalf("%+v, %v", a.held, a.err)
		}
		w.wantZnodes(1, 0)
		w.release(a.held)
		w.wantZnodes(0, 0)
	})
}
