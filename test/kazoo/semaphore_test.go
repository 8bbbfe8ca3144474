package kazoo_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/semaphore"
)

func (w *world) semaphore(c *client, opts semaphore.Options) *semaphore.Semaphore {
	w.Helper()
	return must[*semaphore.Semaphore](w)(semaphore.New(c.Session, w.path, opts))
}

func (w *world) trySemaphore(s *semaphore.Semaphore) (*semaphore.Held, bool) {
	w.Helper()
	return try(w, s.TryAcquire, semaphore.ErrNotAcquired)
}

// innerLock is the directory in which those stand who want a lease.
func (w *world) innerLock() string { return w.path + "-__lock__" }

// wantHolders checks who has a lease, whatever their order.
func (w *world) wantHolders(s *semaphore.Semaphore, want ...string) {
	w.Helper()
	var names []string
	for _, h := range must[[]semaphore.LeaseHolder](w)(s.LeaseHolders(w.Context())) {
		names = append(names, h.Identifier)
	}
	slices.Sort(names)
	w.wantList("holders", names, want...)
}

func TestSemaphore_Basic(t *testing.T) {
	both(t, func(w *world) {
		release(w, acquire(w, w.semaphore(w.client("client"), semaphore.Options{}).Acquire))
	})
}

func TestSemaphore_LockOne(t *testing.T) {
	both(t, func(w *world) {
		c := w.client("client")
		h := acquire(w, w.semaphore(c, semaphore.Options{MaxLeases: 1}).Acquire)
		two := acquireLater(w.Context(), w, w.semaphore(c, semaphore.Options{MaxLeases: 1}).Acquire)
		w.untilChildren(1, w.innerLock())
		w.goOn(two)
		release(w, h)
		release(w, two.get(w))
	})
}

func TestSemaphore_NonBlocking(t *testing.T) {
	both(t, func(w *world) {
		c := w.client("client")
		one := w.semaphore(c, semaphore.Options{Identifier: "sem1", MaxLeases: 2})
		two := w.semaphore(c, semaphore.Options{Identifier: "sem2", MaxLeases: 2})
		three := w.semaphore(c, semaphore.Options{Identifier: "sem3", MaxLeases: 2})
		h1, h2 := acquire(w, one.Acquire), acquire(w, two.Acquire)
		if _, ok := w.trySemaphore(three); ok {
			w.Error("three leases of two")
		}
		w.wantHolders(one, "sem1", "sem2")
		release(w, h2)
		h3 := acquire(w, three.Acquire)
		w.wantHolders(one, "sem1", "sem3")
		release(w, h1)
		release(w, h3)
		w.wantHolders(one)
	})
}

func TestSemaphore_NonBlockingRelease(t *testing.T) {
	both(t, func(w *world) {
		c := w.client("client")
		one := w.semaphore(c, semaphore.Options{Identifier: "sem1", MaxLeases: 1})
		h := acquire(w, one.Acquire)
		if _, ok := w.trySemaphore(w.semaphore(c, semaphore.Options{Identifier: "sem2", MaxLeases: 1})); ok {
			w.Error("two leases of one")
		}
		release(w, h)
		release(w, h) // a second time; of a lease that is none there is nothing to release here
		w.wantHolders(one)
	})
}

func TestSemaphore_Holders(t *testing.T) {
	both(t, func(w *world) {
		c := w.client("client")
		h := acquire(w, w.semaphore(c, semaphore.Options{Identifier: "fred", MaxLeases: 1}).Acquire)
		other := w.semaphore(c, semaphore.Options{})
		w.wantHolders(other, "fred")
		release(w, h)
		w.wantHolders(other)
	})
}

func TestSemaphore_Cancel(t *testing.T) {
	both(t, func(w *world) {
		c := w.client("client")
		fred := w.semaphore(c, semaphore.Options{Identifier: "fred", MaxLeases: 1})
		h := acquire(w, fred.Acquire)
		ctx, cancel := context.WithCancel(w.Context())
		george := acquireLater(ctx, w, w.semaphore(c, semaphore.Options{Identifier: "george", MaxLeases: 1}).Acquire)
		w.untilChildren(1, w.innerLock())
		w.wantHolders(fred, "fred")
		w.goOn(george)
		cancel()
		george.fails(w, context.Canceled)
		w.wantHolders(fred, "fred")
		w.untilChildren(0, w.innerLock())
		release(w, h)
	})
}

// A handle has one lease, however often it is acquired.
func TestSemaphore_MultipleAcquireAndRelease(t *testing.T) {
	both(t, func(w *world) {
		s := w.semaphore(w.client("client"), semaphore.Options{Identifier: "fred", MaxLeases: 1})
		h := acquire(w, s.Acquire)
		if again := acquire(w, s.Acquire); again != h {
			w.Error("two leases")
		}
		w.wantHolders(s, "fred")
		release(w, h)
		w.wantHolders(s)
		release(w, h)
		if next := acquire(w, s.Acquire); next == h || next.Token() <= h.Token() {
			w.Errorf("token %d after %d", next.Token(), h.Token())
		}
		release(w, h) // the old one
		w.wantHolders(s, "fred")
	})
}

func TestSemaphore_HandleSessionLoss(t *testing.T) {
	both(t, func(w *world) {
		c := w.client("client")
		george := w.semaphore(w.client("client2"), semaphore.Options{Identifier: "george", MaxLeases: 1})
		h := acquire(w, george.Acquire)
		fred := w.semaphore(c, semaphore.Options{Identifier: "fred", MaxLeases: 1})
		waiter := acquireLater(w.Context(), w, fred.Acquire)
		w.untilChildren(1, w.innerLock())
		w.wantHolders(george, "george")
		before := w.children(w.innerLock())
		c.expireSession()
		w.until("another contender", func() bool {
			now := w.children(w.innerLock())
			return len(now) == 1 && now[0] != before[0]
		})
		w.goOn(waiter)
		release(w, h)
		got := waiter.get(w)
		w.wantHolders(fred, "fred")
		release(w, got)
	})
}

func TestSemaphore_InconsistentMaxLeases(t *testing.T) {
	both(t, func(w *world) {
		c := w.client("client")
		h := acquire(w, w.semaphore(c, semaphore.Options{MaxLeases: 1}).Acquire)
		_, err := w.semaphore(c, semaphore.Options{MaxLeases: 2}).Acquire(w.Context())
		w.want(err, semaphore.ErrMaxLeases)
		release(w, h)
	})
}

// Data that is no number is nobody's agreement.
func TestSemaphore_InconsistentMaxLeasesOtherData(t *testing.T) {
	both(t, func(w *world) {
		c := w.client("client")
		w.set(w.path, "a$")
		acquire(w, w.semaphore(c, semaphore.Options{MaxLeases: 1}).Acquire)
		w.untilChildren(0, w.innerLock()) // it is in the way of those who don't wait
		if _, ok := w.trySemaphore(w.semaphore(c, semaphore.Options{MaxLeases: 2})); !ok {
			w.Error("no second lease")
		}
		if got := w.data(w.path); got != "a$" {
			w.Errorf("the data is %q", got)
		}
	})
}

func TestSemaphore_Reacquire(t *testing.T) {
	both(t, func(w *world) {
		s := w.semaphore(w.client("client"), semaphore.Options{})
		release(w, acquire(w, s.Acquire))
		release(w, acquire(w, s.Acquire))
	})
}

func TestSemaphore_AcquireAfterCancelled(t *testing.T) {
	both(t, func(w *world) {
		s := w.semaphore(w.client("client"), semaphore.Options{})
		release(w, acquire(w, s.Acquire))
		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		_, err := s.Acquire(ctx)
		w.want(err, context.Canceled)
		release(w, acquire(w, s.Acquire))
	})
}

func TestSemaphore_Timeout(t *testing.T) {
	both(t, func(w *world) {
		h := acquire(w, w.semaphore(w.client("client"), semaphore.Options{Identifier: "one"}).Acquire)
		const patience = 3 * time.Second
		start := time.Now()
		ctx, cancel := context.WithTimeout(w.Context(), patience)
		defer cancel()
		_, err := w.semaphore(w.client("client2"), semaphore.Options{Identifier: "two"}).Acquire(ctx)
		w.want(err, context.DeadlineExceeded)
		if d := time.Since(start); d < patience {
			w.Errorf("it gave up after %v", d)
		}
		blocked, ok := errors.AsType[*recipe.BlockedError](err)
		if !ok || blocked.Blocker != h.Node() || blocked.Identifier != "one" {
			w.Errorf("got %v, want it to name %s", err, h.Node())
		}
		release(w, h)
	})
}
