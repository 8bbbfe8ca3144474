package lock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The test cases of kazoo's test_lock.py, under their names. Its threads are goroutines,
// acquire(blocking=False) is TryAcquire, timeout and cancel are the context's.

// inSession runs a test in a bubble.
func inSession(t *testing.T, test func(w *world, s *session.Session)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		test(w, w.session("client"))
	})
}

func (w *world) make(newLock func(*session.Session, string, lock.Options) (*lock.Lock, error), s *session.Session, opts lock.Options) *lock.Lock {
	w.Helper()
	l, err := newLock(s, path, opts)
	if err != nil {
		w.Fatal(err)
	}
	return l
}

// try returns the hold, or nil when others are in front.
func (w *world) try(l *lock.Lock) *lock.Held {
	w.Helper()
	h, err := l.TryAcquire(w.Context())
	if err != nil && !errors.Is(err, lock.ErrNotAcquired) {
		w.Fatal(err)
	}
	if h != nil {
		w.Cleanup(func() { _ = h.Release(context.WithoutCancel(w.Context())) })
	}
	return h
}

// identifiers returns those of the contenders, in their order.
func (w *world) identifiers(l *lock.Lock) []string {
	w.Helper()
	list, err := l.Contenders(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	names := []string{}
	for _, c := range list {
		names = append(names, c.Identifier)
	}
	return names
}

func (w *world) wantIdentifiers(l *lock.Lock, want ...string) {
	w.Helper()
	if got := w.identifiers(l); !slices.Equal(got, want) {
		w.Errorf("contenders are %q, want %q", got, want)
	}
}

// wait sleeps until what is under way has come to rest.
func wait() { time.Sleep(time.Second) }

func TestLockOne(t *testing.T) {
	inSession(t, func(w *world, s *session.Session) {
		l := w.lockIn(s, "one")
		h := w.acquire(l)
		w.wantIdentifiers(w.lockIn(w.session("other"), "other"), "one")
		if !l.Held() || !h.Valid() || h.Context().Err() != nil {
			w.Error("it is not held")
		}
		w.release(h)
		if l.Held() || h.Valid() || h.Context().Err() == nil {
			w.Error("it is still held")
		}
		w.wantIdentifiers(l)
	})
}

func TestLock(t *testing.T) {
	inSession(t, func(w *world, s *session.Session) {
		names := []string{"0", "1", "2", "3", "4"}
		all := map[string]*acquiring{}
		for _, name := range names {
			all[name] = w.acquireLater(w.Context(), w.lockIn(s, name))
		}
		wait()
		observer := w.lock("observer")
		order := w.identifiers(observer)
		if !slices.Equal(slices.Sorted(slices.Values(order)), names) {
			w.Fatalf("contenders %q", order)
		}
		for i, name := range order {
			for j, later := range order[i:] {
				if all[later].ended() != (j == 0) {
					w.Fatalf("with %q in the line: %s is through: %v", order[i:], later, all[later].ended())
				}
			}
			w.wantIdentifiers(observer, order[i:]...)
			w.release(all[name].held)
			wait()
		}
		w.wantIdentifiers(observer)
	})
}

func TestLockReconnect(t *testing.T) {
	inSession(t, func(w *world, s *session.Session) {
		h := w.acquire(w.lock("one"))
		two := w.acquireLater(w.Context(), w.lockIn(s, "two"))
		wait()
		w.wantIdentifiers(w.lockIn(s, ""), "one", "two")
		w.srv.KillSession(w.id(s))
		time.Sleep(5 * time.Second)
		w.wantIdentifiers(w.lockIn(s, ""), "one", "two")
		w.release(h)
		<-two.done
		if two.err != nil {
			w.Fatal(two.err)
		}
		w.wantIdentifiers(w.lockIn(s, ""), "two")
		w.release(two.held)
	})
}

func TestLockNonBlocking(t *testing.T) {
	inSession(t, func(w *world, s *session.Session) {
		one, two := w.lockIn(s, "one"), w.lockIn(s, "two")
		h := w.try(one)
		if h == nil || w.try(two) != nil {
			w.Error("want one to have it, and two not")
		}
		w.wantIdentifiers(one, "one")
		w.release(h)
	})
}

func TestLockFailFirstCall(t *testing.T) {
	inSession(t, func(w *world, s *session.Session) {
		h := w.acquire(w.lockIn(s, "one"))
		w.wantIdentifiers(w.lockIn(s, "two"), "one")
		w.release(h)
	})
}

func TestLockCancel(t *testing.T) {
	inSession(t, func(w *world, s *session.Session) {
		h := w.acquire(w.lockIn(s, "one"))
		ctx, cancel := context.WithCancel(w.Context())
		two := w.acquireLater(ctx, w.lock("two"))
		wait()
		w.wantIdentifiers(w.lockIn(s, ""), "one", "two")
		cancel()
		<-two.done
		if !errors.Is(two.err, context.Canceled) {
			w.Errorf("got %v", two.err)
		}
		wait()
		w.wantIdentifiers(w.lockIn(s, ""), "one")
		w.release(h)
	})
}

func TestLockNoDoubleCalls(t *testing.T) {
	inSession(t, func(w *world, s *session.Session) {
		l := w.lockIn(s, "one")
		h := w.acquire(l)
		ctx, cancel := context.WithTimeout(w.Context(), 500*time.Millisecond)
		defer cancel()
		if _, err := l.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("got %v", err)
		}
		if !l.Held() {
			w.Error("it is not held any more")
		}
		w.release(h)
		if l.Held() {
			w.Error("it is still held")
		}
	})
}

func TestLockSameThreadNoBlock(t *testing.T) {
	inSession(t, func(w *world, s *session.Session) {
		l := w.lockIn(s, "one")
		h := w.try(l)
		if h == nil || w.try(l) != nil {
			w.Error("want it once, not twice")
		}
		w.release(h)
	})
}

func TestLockManyThreadsNoBlock(t *testing.T) {
	inSession(t, func(w *world, s *session.Session) {
		// Each of kazoo's threads asks the one that is in its process; here all are contenders,
		// and one that gives up can be in front of another for a moment. Never two have it.
		l := w.lockIn(s, "one")
		h := w.acquire(l)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if w.try(l) != nil {
					w.Error("acquired twice")
				}
			})
		}
		wg.Wait()
		w.release(h)
		if h := w.try(l); h == nil {
			w.Error("not free")
		}
	})
}

func TestLockManyThreads(t *testing.T) {
	inSession(t, func(w *world, s *session.Session) {
		l := w.lockIn(s, "one")
		var inside, most atomic.Int32
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				h := w.acquire(l)
				most.Store(max(most.Load(), inside.Add(1)))
				time.Sleep(10 * time.Millisecond)
				inside.Add(-1)
				w.release(h)
			})
		}
		wg.Wait()
		if most.Load() != 1 {
			w.Errorf("%d at once", most.Load())
		}
	})
}

func TestLockReacquire(t *testing.T) {
	inSession(t, func(w *world, s *session.Session) {
		l := w.lockIn(s, "one")
		w.acquireAndRelease(l)
		w.acquireAndRelease(l)
	})
}

// A persistent contender is still there when its client is not.
func TestLockEphemeral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s, err := session.New([]string{zktest.VirtualAddress}, session.Options{Dial: w.nw.Dial, StopTimeout: time.Second})
		if err != nil {
			w.Fatal(err)
		}
		stop := w.run(s)
		h, err := w.make(lock.New, s, lock.Options{Identifier: "ephemeral", Persistent: true}).Acquire(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		stop()
		w.ended(h, session.ErrClosed)
		if err := h.Release(w.Context()); !errors.Is(err, session.ErrClosed) {
			w.Errorf("released: %v", err)
		}
		_, stat, ok := w.srv.Get(h.Node())
		if !ok || stat.EphemeralOwner != 0 {
			w.Errorf("contender: %+v, %v", stat, ok)
		}
		if other := w.lock("other"); w.try(other) != nil {
			w.Error("another has it")
		}
	})
}

func TestLockTimeout(t *testing.T) {
	inSession(t, func(w *world, s *session.Session) {
		h := w.acquire(w.lockIn(s, "one"))
		ctx, cancel := context.WithTimeout(w.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		if _, err := w.lock("two").Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("got %v", err)
		}
		if d := time.Since(start); d != 3*time.Second {
			w.Errorf("after %v", d)
		}
		w.release(h)
	})
}

func TestReadLock(t *testing.T) {
	inSession(t, func(w *world, s *session.Session) {
		r1, r2 := w.make(lock.NewRead, s, lock.Options{Identifier: "reader one"}), w.make(lock.NewRead, w.session("other"), lock.Options{Identifier: "reader two"})
		wr := w.make(lock.NewWrite, s, lock.Options{Identifier: "writer"})
		h1, h2 := w.try(r1), w.try(r2)
		if h1 == nil || h2 == nil {
			w.Fatal("readers don't share it")
		}
		if w.try(wr) != nil {
			w.Error("a writer came in")
		}
		w.wantIdentifiers(r1, "reader one", "reader two")
		w.release(h1)
		if w.try(wr) != nil {
			w.Error("a writer came in beside the other reader")
		}
		w.release(h2)
		if h := w.try(wr); h == nil {
			w.Error("not free")
		}
	})
}

func TestWriteLock(t *testing.T) {
	inSession(t, func(w *world, s *session.Session) {
		wr := w.make(lock.NewWrite, s, lock.Options{Identifier: "writer"})
		h := w.try(wr)
		if h == nil {
			w.Fatal("not free")
		}
		if w.try(w.make(lock.NewRead, s, lock.Options{})) != nil {
			w.Error("a reader came in")
		}
		if w.try(w.make(lock.NewWrite, s, lock.Options{})) != nil || w.try(w.lockIn(s, "plain")) != nil {
			w.Error("a second writer came in")
		}
		w.wantIdentifiers(wr, "writer")
		w.release(h)
	})
}

// A writer holds it, a reader waits, behind it a writer: kazoo 2.8 deadlocks here.
func TestRWLock(t *testing.T) {
	inSession(t, func(w *world, s *session.Session) {
		first := w.acquire(w.make(lock.NewWrite, s, lock.Options{Identifier: "w1"}))
		reader := w.acquireLater(w.Context(), w.make(lock.NewRead, w.session("r"), lock.Options{Identifier: "r"}))
		wait()
		last := w.make(lock.NewWrite, w.session("w2"), lock.Options{Identifier: "w2"})
		second := w.acquireLater(w.Context(), last)
		wait()
		w.wantIdentifiers(last, "w1", "r", "w2")
		if reader.ended() || second.ended() {
			w.Fatal("somebody came in beside the writer")
		}
		w.release(first)
		wait()
		if !reader.ended() || reader.err != nil || second.ended() {
			w.Fatalf("reader: %v, second writer is through: %v", reader.err, second.ended())
		}
		late := w.acquireLater(w.Context(), w.make(lock.NewRead, s, lock.Options{Identifier: "late"}))
		wait()
		if late.ended() {
			w.Error("a reader overtook a writer that waits")
		}
		w.release(reader.held)
		wait()
		if !second.ended() || second.err != nil || late.ended() {
			w.Fatalf("second writer: %v", second.err)
		}
		w.release(second.held)
		<-late.done
		if late.err != nil {
			w.Fatal(late.err)
		}
		w.release(late.held)
	})
}

// kazoo's own names beside those of go-zookeeper's lock.
func TestSequence(t *testing.T) {
	const (
		goNode     = "_c_8eb60557ba51e0da67eefc47467d3f34-lock-0000000031"
		pythonNode = "514e5a831836450cb1a56c741e990fd8__lock__0000000032"
	)
	inSession(t, func(w *world, s *session.Session) {
		for _, name := range []string{goNode, "hello", "world", "lock", "lock__0000000000", "-lock-", "12345"} {
			if err := w.srv.Create(path+"/"+name, nil); err != nil {
				w.Fatal(err)
			}
		}
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpCreate && r.Flags == 3 {
				r.Flags, r.Path = 1, path+"/"+pythonNode
			}
			return zktest.Action{}
		})
		h := w.try(w.lockIn(s, ""))
		if h == nil {
			w.Fatal("by default it waits for the node of go-zookeeper")
		}
		w.release(h)
		_, err := w.make(lock.New, s, lock.Options{ExtraPatterns: []string{"-lock-"}}).TryAcquire(w.Context())
		if blocked, ok := errors.AsType[*lock.BlockedError](err); !ok || blocked.Blocker != path+"/"+goNode {
			w.Errorf("got %v, want it to be behind %s", err, goNode)
		}
	})
}
