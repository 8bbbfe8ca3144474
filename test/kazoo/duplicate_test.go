package kazoo_test

import (
	"context"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/recipe/semaphore"
	"github.com/kielgo/kiel/session"
)

// An identifier is for those who look: two of one identifier are two, and neither has what the other has.
func TestDuplicateIdentifiersInTurns(t *testing.T) {
	each(t, inTurns, func(w *world, r turns) {
		c := w.client("client")
		h := acquire(w, r.by(w, c, "same"))
		beside := acquireLater(w.Context(), w, r.by(w, c, "same")) // in the same session
		w.goOn(beside)
		w.wantStands(h)
		release(w, h)
		next := beside.get(w)
		w.wantStands(next)
		other := acquireLater(w.Context(), w, r.by(w, w.client("client2"), "same"))
		w.goOn(other)
		w.must(letGo(w, h)) // a second time, of nobody else's
		w.wantStands(next)
		c.expireSession()
		got := other.get(w)
		w.must(letGo(w, next))
		w.wantStands(got)
		release(w, got)
		w.wantNothingLeft()
	})
}

func TestDuplicateIdentifiersOfContenders(t *testing.T) {
	both(t, func(w *world) {
		l := w.lock(w.client("client"), "same")
		h := acquire(w, l.Acquire)
		waiter := acquireLater(w.Context(), w, w.lock(w.client("client2"), "same").Acquire)
		w.wantList("contenders", w.untilContenders(2, l), "same", "same")
		release(w, h)
		got := waiter.get(w)
		w.wantContenders(l, "same")
		release(w, got)
	})
}

func TestDuplicateIdentifiersOfASemaphore(t *testing.T) {
	both(t, func(w *world) {
		opts := semaphore.Options{Identifier: "same", MaxLeases: 2}
		one, two := w.semaphore(w.client("client"), opts), w.semaphore(w.client("client2"), opts)
		h1, h2 := acquire(w, one.Acquire), acquire(w, two.Acquire)
		w.wantHolders(one, "same", "same")
		if _, ok := w.trySemaphore(w.semaphore(w.client("client3"), opts)); ok {
			w.Error("three leases of two")
		}
		release(w, h1)
		w.wantHolders(one, "same")
		w.wantStands(h2)
		release(w, h2)
		w.wantHolders(one)
	})
}

// The second of one identifier gets the lease that the first has, as in kazoo; and here the first is told, and neither shortens
// what the other was promised.
func TestDuplicateIdentifiersOfALease(t *testing.T) {
	both(t, func(w *world) {
		clock := newClock()
		third := w.lease(w.client("client3"), "other", 6, clock)
		first := acquire(w, w.lease(w.client("client"), "same", 12, clock).Obtain)
		end := first.End()
		second := acquire(w, w.lease(w.client("client2"), "same", 6, clock).Obtain)
		w.until("the end of the first one's hold", func() bool { return first.Context().Err() != nil })
		w.want(context.Cause(first.Context()), lease.ErrLost)
		if first.Valid() || !second.Valid() || second.End().Before(end) {
			w.Errorf("valid: %v and %v; end %v, want none before %v", first.Valid(), second.Valid(), second.End(), end)
		}
		w.must(letGo(w, first))
		if !second.Valid() {
			w.Error("the first one has given back what the second has")
		}
		release(w, second)
		clock.forward(11)
		if _, ok := try(w, third.Obtain, lease.ErrNotObtained); ok {
			w.Error("it was given away before the end that the first had")
		}
		clock.forward(2)
		if _, ok := try(w, third.Obtain, lease.ErrNotObtained); !ok {
			w.Error("not free after the end that the first had")
		}
	})
}

func TestDuplicateIdentifiersOfAParty(t *testing.T) {
	each(t, parties, func(w *world, in func(*world, *client, string) crowd) {
		one, two := in(w, w.client("client"), "same"), in(w, w.client("client2"), "same")
		w.join(one)
		w.join(two)
		w.wantMembers(one, "same", "same")
		w.leave(one)
		w.wantMembers(two, "same")
		w.leave(two)
		w.wantMembers(two)
	})
}

// Handles of one process have one default identifier.
func TestDuplicateIdentifiersOfADoubleBarrier(t *testing.T) {
	both(t, func(w *world) {
		one, two := w.enterBoth(w.double(w.client("client"), w.path, 2), w.double(w.client("client2"), w.path, 2))
		if w.data(one.Node()) != w.data(two.Node()) || one.Node() == two.Node() {
			w.Errorf("%s and %s", one.Node(), two.Node())
		}
		leaving := w.leaveBarrier(one)
		w.goOn(leaving)
		w.leaveBarrier(two).get(w)
		leaving.get(w)
		w.wantList("children", w.children(w.path))
	})
}

// Two of one identifier would want the same items, and leave others to nobody: kazoo's do. Here the later one fails, once the
// first has outlived what a dead member leaves.
func TestDuplicateIdentifiersOfASet(t *testing.T) {
	both(t, func(w *world) {
		short := func(opts *session.Options) { opts.Timeout, opts.MaxSessionTimeout = 12*time.Second, 12*time.Second } // 4/3 of it is waited for
		ps := w.partitioners(2, short)
		ps.start("same")
		ps.settle([]string{"0", "1"})
		first := ps.all[0]
		ps.client = w.client("client2", short)
		ps.start("same")
		second := ps.all[1]
		start := time.Now()
		w.until("the failure of the second", func() bool {
			for _, p := range ps.all {
				if p.MustRelease() {
					_ = p.ReleaseSet(w.Context()) // the second may fail in it
				}
			}
			return second.Failed()
		})
		w.want(second.Snapshot().Err, partitioner.ErrDuplicate)
		if d := time.Since(start); d < 12*time.Second {
			w.Errorf("it failed after %v", d)
		}
		ps.all = ps.all[:1]
		ps.settle([]string{"0", "1"})
		ps.finish(second)
		ps.finish(first)
		w.wantNothingLeft()
	})
}
