package semaphore_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/recipe"
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
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
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
				t.Errorf("contender %q with %q, want %q", name, data, want)
			}
			got, stat, _ := w.Srv.Get(h.Node())
			if !lease.MatchString(h.Node()) || got == nil || string(got) != identifier || stat.EphemeralOwner != w.ID(s) || h.Token() != stat.Czxid {
				t.Errorf("lease %q: %#v, %+v, token %d", h.Node(), got, stat, h.Token())
			}
			if data, stat, _ := w.Srv.Get(path); string(data) != "3" || stat.EphemeralOwner != 0 || stat.Version != 0 {
				t.Errorf("semaphore: %q, %+v", data, stat)
			}
			w.wantZnodes(1, 0)
			w.release(h)
			w.release(h) // a second time
			w.ended(h, semaphore.ErrReleased)
			w.wantZnodes(0, 0)
			if _, _, ok := w.Srv.Get(lockDir); !ok {
				t.Error("the lock's directory was deleted")
			}
		})
	}
}

// kazoo's test_basic and test_lock_one: with one lease the second waits.
func TestLockOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.acquire(w.semaphore("one", 0))
		two := w.acquireLater(t.Context(), w.semaphore("two", 1))
		time.Sleep(time.Minute)
		if two.ended() {
			t.Fatalf("two has a lease or gave up: %v", two.err)
		}
		w.wantZnodes(1, 1)
		w.release(h)
		w.got(two)
		w.wantZnodes(1, 0)
		w.release(two.held)
		w.wantZnodes(0, 0)
	})
}

// kazoo's test_non_blocking.
func TestNonBlocking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		one, two, three := w.semaphore("sem1", 2), w.semaphore("sem2", 2), w.semaphore("sem3", 2)
		h, err := one.TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		h2, err := two.TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = three.TryAcquire(t.Context())
		blocked, ok := errors.AsType[*recipe.BlockedError](err)
		if !errors.Is(err, semaphore.ErrNotAcquired) || !ok || blocked.Detail != "2 taken" || blocked.Path != path ||
			blocked.Blocker != h.Node() && blocked.Blocker != h2.Node() || !strings.HasPrefix(blocked.Identifier, "sem") {
			t.Errorf("got %v (%+v)", err, blocked)
		}
		w.wantZnodes(2, 0)
		if list := w.holders(three); list != "sem1 sem2" && list != "sem2 sem1" {
			t.Errorf("holders %q", list)
		}
		w.release(h)
		h, err = three.TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if list := w.holders(one); list != "sem2 sem3" && list != "sem3 sem2" {
			t.Errorf("holders %q", list)
		}
		w.release(h)
		w.release(h2)
		w.wantZnodes(0, 0)
	})
}

// A try fails also when somebody else is in front at the inner lock, as in kazoo.
func TestTryBehindAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		contender := lockDir + "/514e5a831836450cb1a56c741e990fd8__lock__0000000000"
		if err := w.Srv.Create(contender, []byte("b'p'")); err != nil {
			t.Fatal(err)
		}
		_, err := w.semaphore("a", 2).TryAcquire(t.Context())
		blocked, ok := errors.AsType[*recipe.BlockedError](err)
		if !errors.Is(err, semaphore.ErrNotAcquired) || !ok || blocked.Blocker != contender || blocked.Identifier != "b'p'" || blocked.Detail != "1 ahead" {
			t.Errorf("got %v (%+v)", err, blocked)
		}
		w.wantZnodes(0, 1)
	})
}

// kazoo's test_holders.
func TestHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.Session("a")
		sem := w.semaphoreIn(s, "sem1", 1)
		if got := sem.Identifier(); got != "sem1" {
			t.Errorf("identifier %q", got)
		}
		if list := w.holders(sem); list != "" {
			t.Errorf("holders %q", list)
		}
		if _, _, ok := w.Srv.Get("/app"); ok {
			t.Error("looking created something")
		}
		h := w.acquire(sem)
		list, err := sem.LeaseHolders(t.Context())
		if err != nil || len(list) != 1 || list[0].Identifier != "sem1" || list[0].Node != h.Node() || list[0].Token != h.Token() ||
			list[0].Session != w.ID(s) || time.Since(list[0].Since) > time.Minute {
			t.Errorf("%+v, %v", list, err)
		}
	})
}

// kazoo's test_semaphore_cancel and test_acquire_after_cancelled: who gives up leaves nothing behind, and may come again.
func TestSemaphoreCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.acquire(w.semaphore("sem1", 1))
		sem := w.semaphore("sem2", 1)
		why := errors.New("cancelled")
		ctx, cancel := context.WithCancelCause(t.Context())
		a := w.acquireLater(ctx, sem)
		b := w.acquireLater(ctx, w.semaphore("sem3", 1))
		time.Sleep(time.Second)
		w.wantZnodes(1, 2)
		cancel(why)
		<-a.done
		<-b.done
		for _, err := range []error{a.err, b.err} {
			if _, ok := errors.AsType[*recipe.BlockedError](err); !ok || !errors.Is(err, why) {
				t.Errorf("got %v", err)
			}
		}
		synctest.Wait()
		w.wantZnodes(1, 0)
		w.release(h)
		w.release(w.acquire(sem))
		w.wantZnodes(0, 0)
	})
}

// kazoo's test_multiple_acquire_and_release: a handle has one lease, however often it is acquired.
func TestMultipleAcquireAndRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		sem := w.semaphore("a", 2)
		h, again := w.acquire(sem), w.acquire(sem)
		third, err := sem.TryAcquire(t.Context())
		if again != h || third != h || err != nil {
			t.Errorf("%p, %p, %p, %v", h, again, third, err)
		}
		w.wantZnodes(1, 0)
		w.release(h)
		w.wantZnodes(0, 0)
		if h.Context().Err() == nil {
			t.Error("the lease goes on")
		}
		// test_reacquire
		next := w.acquire(sem)
		if next == h || next.Token() <= h.Token() || next.Context().Err() != nil {
			t.Errorf("token %d after %d", next.Token(), h.Token())
		}
		w.release(h) // the old one, which touches nothing of the new one
		w.wantZnodes(1, 0)
		w.release(next)
	})
}

// kazoo's test_inconsistent_max_leases, and its other_data.
func TestInconsistentMaxLeases(t *testing.T) {
	for data, want := range map[string]error{
		"2": semaphore.ErrMaxLeases, " 1\n": nil, "1": nil, "0001": nil, "a$": nil, "99999999999999999999": semaphore.ErrMaxLeases, "": nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			if err := w.Srv.Create(path, []byte(data)); err != nil {
				t.Fatal(err)
			}
			sem := w.semaphore("a", 1)
			h, err := sem.TryAcquire(t.Context())
			if !errors.Is(err, want) {
				t.Errorf("%q: got %v, want %v", data, err, want)
			}
			after, stat, _ := w.Srv.Get(path)
			if data != "" && (string(after) != data || stat.Version != 0) || data == "" && string(after) != "1" {
				t.Errorf("%q was made %q, version %d", data, after, stat.Version)
			}
			if err != nil {
				w.wantZnodes(0, 0)
				return
			}
			if _, err := w.semaphore("b", 1).TryAcquire(t.Context()); !errors.Is(err, semaphore.ErrNotAcquired) {
				t.Errorf("%q: a second lease: %v", data, err)
			}
			w.release(h)
		})
	}
}

// kazoo's test_semaphore_timeout; the time is that of the whole call.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.acquire(w.semaphore("sem1", 1))
		for _, d := range []time.Duration{500 * time.Millisecond, 40 * time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			start := time.Now()
			_, err := w.semaphore("sem2", 1).Acquire(ctx)
			blocked, ok := errors.AsType[*recipe.BlockedError](err)
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != d {
				t.Errorf("%v after %v", err, time.Since(start))
			}
			if !ok || blocked.Blocker != h.Node() || blocked.Identifier != "sem1" || blocked.Detail != "1 taken" || !strings.Contains(err.Error(), h.Node()) {
				t.Errorf("got %v (%+v)", err, blocked)
			}
			cancel()
		}
		synctest.Wait()
		w.wantZnodes(1, 0)
	})
}

// Children of any name count as leases, as in kazoo.
func TestForeignChildrenCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if err := w.Srv.Create(path+"/foreign", nil); err != nil {
			t.Fatal(err)
		}
		h := w.acquire(w.semaphore("a", 2))
		b := w.acquireLater(t.Context(), w.semaphore("b", 2))
		time.Sleep(time.Second)
		if b.ended() {
			t.Fatalf("three leases of two: %v", b.err)
		}
		if err := w.Srv.Delete(path + "/foreign"); err != nil {
			t.Fatal(err)
		}
		w.got(b)
		w.release(h)
		w.release(b.held)
	})
}
