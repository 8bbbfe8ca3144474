package semaphore_test

import (
	"context"
	"errors"
	"math"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/recipe/semaphore"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestNewRefuses(t *testing.T) {
	s, err := session.New([]string{"zk:2181"}, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		s    *session.Session
		path string
		opts semaphore.Options
		want string
	}{
		"no session": {nil, path, semaphore.Options{}, "session is nil"},
		"path":       {s, "app/sem", semaphore.Options{}, "app/sem"},
		"root":       {s, "/", semaphore.Options{}, "root"},
		"identifier": {s, path, semaphore.Options{Identifier: "a\xff"}, `Identifier: "a\xff"`},
		"leases":     {s, path, semaphore.Options{MaxLeases: -1}, "MaxLeases: -1 is less than 1"},
	}
	for what, tt := range tests {
		if _, err := semaphore.New(tt.s, tt.path, tt.opts); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", what, err, tt.want)
		}
	}
}

// The znodes are kazoo's; test/interop/recipes compares them with what Python writes.
func TestZnodes(t *testing.T) {
	printed := map[string]string{
		"":                         "",
		"sid":                      `b'sid'`,
		"café":                     `b'caf\xc3\xa9'`,
		"it's":                     `b"it's"`,
		`it's "x"`:                 `b'it\'s "x"'`,
		`say "x"`:                  `b'say "x"'`,
		"a\\b\t\n\r\x00\x1f\x7f~ ": `b'a\\b\t\n\r\x00\x1f\x7f~ '`,
	}
	lease := regexp.MustCompile(`^/app/sem/[0-9a-f]{32}$`)
	contender := regexp.MustCompile(`^[0-9a-f]{32}__lock__\d{10}$`)
	for identifier, want := range printed {
		inWorld(t, func(w *world) {
			seen := ""
			w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
				if makesLease(*r) {
					for _, name := range w.Srv.Children(lockDir) {
						data, _, _ := w.Srv.Get(lockDir + "/" + name)
						seen = name + " " + string(data)
					}
				}
				return zktest.Action{}
			})
			s := w.Session("a")
			h := w.acquire(w.semaphoreIn(s, identifier, 3))
			name, data, _ := strings.Cut(seen, " ")
			if !contender.MatchString(name) || data != want {
				w.Errorf("contender %q with %q, want %q", name, data, want)
			}
			got, stat, _ := w.Srv.Get(h.Node())
			if !lease.MatchString(h.Node()) || got == nil || string(got) != identifier || stat.EphemeralOwner != w.ID(s) || h.Token() != stat.Czxid {
				w.Errorf("lease %q: %#v, %+v, token %d", h.Node(), got, stat, h.Token())
			}
			if data, stat, _ := w.Srv.Get(path); string(data) != "3" || stat.EphemeralOwner != 0 || stat.Version != 0 {
				w.Errorf("semaphore: %q, %+v", data, stat)
			}
			w.wantZnodes(1, 0)
			w.Release(h)
			w.Release(h) // a second time
			w.Ended(h, semaphore.ErrReleased)
			w.wantZnodes(0, 0)
			if _, _, ok := w.Srv.Get(lockDir); !ok {
				w.Error("the lock's directory was deleted")
			}
		})
	}
}

// kazoo's test_basic and test_lock_one: with one lease the second waits.
func TestLockOne(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(w.semaphore("one", 0))
		two := w.acquireLater(w.Context(), w.semaphore("two", 1))
		time.Sleep(time.Minute)
		if two.Ended() {
			w.Fatalf("two has a lease or gave up: %v", two.Err)
		}
		w.wantZnodes(1, 1)
		w.Release(h)
		two.Get(w)
		w.wantZnodes(1, 0)
		w.Release(two.Value)
		w.wantZnodes(0, 0)
	})
}

// kazoo's test_non_blocking.
func TestNonBlocking(t *testing.T) {
	inWorld(t, func(w *world) {
		one, two, three := w.semaphore("sem1", 2), w.semaphore("sem2", 2), w.semaphore("sem3", 2)
		h, err := one.TryAcquire(w.Context())
		w.Must(err)
		h2, err := two.TryAcquire(w.Context())
		w.Must(err)
		_, err = three.TryAcquire(w.Context())
		blocked, ok := errors.AsType[*recipe.BlockedError](err)
		if !errors.Is(err, semaphore.ErrNotAcquired) || !ok || blocked.Detail != "2 taken" || blocked.Path != path ||
			blocked.Blocker != h.Node() && blocked.Blocker != h2.Node() || !strings.HasPrefix(blocked.Identifier, "sem") {
			w.Errorf("got %v (%+v)", err, blocked)
		}
		w.wantZnodes(2, 0)
		if list := w.holders(three); list != "sem1 sem2" && list != "sem2 sem1" {
			w.Errorf("holders %q", list)
		}
		w.Release(h)
		h, err = three.TryAcquire(w.Context())
		w.Must(err)
		if list := w.holders(one); list != "sem2 sem3" && list != "sem3 sem2" {
			w.Errorf("holders %q", list)
		}
		w.Release(h)
		w.Release(h2)
		w.wantZnodes(0, 0)
	})
}

// A try fails also when somebody else is in front at the inner lock, as in kazoo.
func TestTryBehindAWaiter(t *testing.T) {
	inWorld(t, func(w *world) {
		contender := lockDir + "/514e5a831836450cb1a56c741e990fd8__lock__0000000000"
		w.Must(w.Srv.Create(contender, []byte("b'p'")))
		_, err := w.semaphore("a", 2).TryAcquire(w.Context())
		blocked, ok := errors.AsType[*recipe.BlockedError](err)
		if !errors.Is(err, semaphore.ErrNotAcquired) || !ok || blocked.Blocker != contender || blocked.Identifier != "b'p'" || blocked.Detail != "1 ahead" {
			w.Errorf("got %v (%+v)", err, blocked)
		}
		w.wantZnodes(0, 1)
	})
}

// kazoo's test_holders.
func TestHolders(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.Session("a")
		sem := w.semaphoreIn(s, "sem1", 1)
		if got := sem.Identifier(); got != "sem1" {
			w.Errorf("identifier %q", got)
		}
		if list := w.holders(sem); list != "" {
			w.Errorf("holders %q", list)
		}
		if _, _, ok := w.Srv.Get("/app"); ok {
			w.Error("looking created something")
		}
		h := w.acquire(sem)
		list, err := sem.LeaseHolders(w.Context())
		if err != nil || len(list) != 1 || list[0].Identifier != "sem1" || list[0].Node != h.Node() || list[0].Token != h.Token() ||
			list[0].Session != w.ID(s) || time.Since(list[0].Since) > time.Minute {
			w.Errorf("%+v, %v", list, err)
		}
	})
}

// kazoo's test_semaphore_cancel and test_acquire_after_cancelled: who gives up leaves nothing behind, and may come again.
func TestSemaphoreCancel(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(w.semaphore("sem1", 1))
		sem := w.semaphore("sem2", 1)
		why := errors.New("cancelled")
		ctx, cancel := context.WithCancelCause(w.Context())
		a := w.acquireLater(ctx, sem)
		b := w.acquireLater(ctx, w.semaphore("sem3", 1))
		time.Sleep(time.Second)
		w.wantZnodes(1, 2)
		cancel(why)
		<-a.Done
		<-b.Done
		for _, err := range []error{a.Err, b.Err} {
			if _, ok := errors.AsType[*recipe.BlockedError](err); !ok || !errors.Is(err, why) {
				w.Errorf("got %v", err)
			}
		}
		synctest.Wait()
		w.wantZnodes(1, 0)
		w.Release(h)
		w.Release(w.acquire(sem))
		w.wantZnodes(0, 0)
	})
}

// kazoo's test_multiple_acquire_and_release: a handle has one lease, however often it is acquired.
func TestMultipleAcquireAndRelease(t *testing.T) {
	inWorld(t, func(w *world) {
		sem := w.semaphore("a", 2)
		h, again := w.acquire(sem), w.acquire(sem)
		third, err := sem.TryAcquire(w.Context())
		if again != h || third != h || err != nil {
			w.Errorf("%p, %p, %p, %v", h, again, third, err)
		}
		w.wantZnodes(1, 0)
		w.Release(h)
		w.wantZnodes(0, 0)
		if h.Context().Err() == nil {
			w.Error("the lease goes on")
		}
		// test_reacquire
		next := w.acquire(sem)
		if next == h || next.Token() <= h.Token() || next.Context().Err() != nil {
			w.Errorf("token %d after %d", next.Token(), h.Token())
		}
		w.Release(h) // the old one, which touches nothing of the new one
		w.wantZnodes(1, 0)
		w.Release(next)
	})
}

// kazoo's test_inconsistent_max_leases, and its other_data.
func TestInconsistentMaxLeases(t *testing.T) {
	for data, want := range map[string]error{
		"2": semaphore.ErrMaxLeases, " 1\n": nil, "1": nil, "0001": nil, "a$": nil, "99999999999999999999": semaphore.ErrMaxLeases, "": nil,
	} {
		inWorld(t, func(w *world) {
			w.Must(w.Srv.Create(path, []byte(data)))
			sem := w.semaphore("a", 1)
			h, err := sem.TryAcquire(w.Context())
			if !errors.Is(err, want) {
				w.Errorf("%q: got %v, want %v", data, err, want)
			}
			after, stat, _ := w.Srv.Get(path)
			if data != "" && (string(after) != data || stat.Version != 0) || data == "" && string(after) != "1" {
				w.Errorf("%q was made %q, version %d", data, after, stat.Version)
			}
			if err != nil {
				w.wantZnodes(0, 0)
				return
			}
			if _, err := w.semaphore("b", 1).TryAcquire(w.Context()); !errors.Is(err, semaphore.ErrNotAcquired) {
				w.Errorf("%q: a second lease: %v", data, err)
			}
			w.Release(h)
		})
	}
}

// kazoo's test_semaphore_timeout; the time is that of the whole call.
func TestTimeout(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(w.semaphore("sem1", 1))
		for _, d := range []time.Duration{500 * time.Millisecond, 40 * time.Second} {
			ctx, cancel := context.WithTimeout(w.Context(), d)
			start := time.Now()
			_, err := w.semaphore("sem2", 1).Acquire(ctx)
			blocked, ok := errors.AsType[*recipe.BlockedError](err)
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != d {
				w.Errorf("%v after %v", err, time.Since(start))
			}
			if !ok || blocked.Blocker != h.Node() || blocked.Identifier != "sem1" || blocked.Detail != "1 taken" || !strings.Contains(err.Error(), h.Node()) {
				w.Errorf("got %v (%+v)", err, blocked)
			}
			cancel()
		}
		synctest.Wait()
		w.wantZnodes(1, 0)
	})
}

// The sequence numbers of the inner lock have come to their end.
func TestNumbersAtTheirEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Must(errors.Join(w.Srv.Create(lockDir, nil), w.Srv.SetCreates(lockDir, math.MaxInt32)))
		if _, err := w.semaphore("a", 1).Acquire(w.Context()); !errors.Is(err, lock.ErrSequenceExhausted) {
			w.Errorf("got %v", err)
		}
		w.wantZnodes(0, 0)
	})
}

// Children of any name count as leases, as in kazoo.
func TestForeignChildrenCount(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Must(w.Srv.Create(path+"/foreign", nil))
		h := w.acquire(w.semaphore("a", 2))
		b := w.waiter("b", 2)
		if b.Ended() {
			w.Fatalf("three leases of two: %v", b.Err)
		}
		w.Must(w.Srv.Delete(path + "/foreign"))
		b.Get(w)
		w.Release(h)
		w.Release(b.Value)
	})
}
