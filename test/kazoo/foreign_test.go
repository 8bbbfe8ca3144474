package kazoo_test

import (
	"context"
	"slices"
	"testing"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/recipe/semaphore"
	"github.com/kielgo/kiel/session"
)

// strange are names that no recipe gives.
var strange = []string{
	"hello", "lock", "-lock-", "__lock__", "x__lock__12", "__lock__0000000000x", "0000000000", goNode, "entry", "lease", "a b", "ключ",
}

// wantStrange checks that nobody has removed them.
func (w *world) wantStrange(dir string) {
	w.Helper()
	there := w.children(dir)
	for _, name := range strange {
		if !slices.Contains(there, name) {
			w.Errorf("%s has no %q any more", dir, name)
		}
	}
}

// Children with names of others are in nobody's way, and nobody removes them.
func TestForeignChildren(t *testing.T) {
	each(t, inTurns, func(w *world, r turns) {
		dirs := []string{w.path, session.Join(w.path, "entries"), session.Join(w.path, "taken")}
		if r.line != nil {
			dirs = []string{r.line(w)}
		}
		for _, dir := range dirs {
			w.create(dir, strange...)
		}
		h := acquire(w, r.by(w, w.client("client"), "one"))
		waiter := acquireLater(w.Context(), w, r.by(w, w.client("client2"), "two"))
		w.goOn(waiter)
		release(w, h)
		release(w, waiter.get(w))
		for _, dir := range dirs {
			w.wantStrange(dir)
		}
		w.wantNothingLeft()
	})
}

// Any child of a semaphore's znode is a lease, as in kazoo.
func TestForeignLeaseOfASemaphore(t *testing.T) {
	both(t, func(w *world) {
		s := w.semaphore(w.client("client"), semaphore.Options{Identifier: "fred", MaxLeases: 1})
		w.set(w.path, "1")
		w.create(w.path, "strange")
		if _, ok := w.trySemaphore(s); ok {
			w.Error("two leases of one")
		}
		w.wantHolders(s, "")
		waiter := acquireLater(w.Context(), w, s.Acquire)
		w.goOn(waiter)
		w.remove(session.Join(w.path, "strange"))
		h := waiter.get(w)
		w.wantHolders(s, "fred")
		release(w, h)
	})
}

// An entry's name begins with "entry-"; the length counts all children, as kazoo's does.
func TestForeignChildrenOfAQueue(t *testing.T) {
	both(t, func(w *world) {
		q := w.queue()
		w.create(w.path, strange...)
		_, err := q.TryGet(w.Context())
		w.want(err, queue.ErrEmpty)
		w.wantLen(q, len(strange))
		w.put(q, "one", queue.DefaultPriority)
		w.wantValue(q, "one")
		w.wantStrange(w.path)
	})
}

// A lease is where its record is; a slot is where its number is.
func TestForeignChildrenOfALease(t *testing.T) {
	both(t, func(w *world) {
		w.create(w.path, strange...)
		w.create(session.Join(w.path, "0"), strange...)
		w.create(session.Join(w.path, "2"), "lease_holder") // no record, and no slot
		c, clock := w.client("client"), newClock()
		release(w, acquire(w, w.lease(c, "one", 3, clock).Obtain))
		opts := lease.Options{Identifier: "one", Duration: 3 * unit, Now: clock.Now}
		multi := must[*lease.MultiNonBlockingLease](w)(lease.NewMulti(c.Session, w.path, 2, opts))
		holds := must[[]*lease.Held](w)(multi.ObtainAll(w.Context()))
		if len(holds) != 2 {
			w.Errorf("%d slots of 2", len(holds))
		}
		for _, h := range holds {
			release(w, h)
		}
		w.wantStrange(w.path)
		w.wantStrange(session.Join(w.path, "0"))
	})
}

// A barrier with children is not removed: kazoo's remove fails on it, too.
func TestForeignChildrenOfABarrier(t *testing.T) {
	both(t, func(w *world) {
		b := w.barrier(w.client("client"))
		w.must(b.Create(w.Context()))
		w.create(w.path, "strange")
		waiter := later(w, func() (struct{}, error) { return struct{}{}, w.barrier(w.client("client2")).Wait(w.Context()) })
		_, err := b.Remove(w.Context())
		w.want(err, session.ErrNotEmpty)
		w.goOn(waiter)
		w.remove(session.Join(w.path, "strange"))
		if !must[bool](w)(b.Remove(w.Context())) {
			w.Error("there was none")
		}
		waiter.get(w)
	})
}

// Any child of a double barrier is a member, as in kazoo: who enters counts it, and who leaves waits for it.
func TestForeignMemberOfADoubleBarrier(t *testing.T) {
	both(t, func(w *world) {
		w.create(w.path, "strange")
		d := w.double(w.client("client"), w.path, 2)
		m := w.enter(d).get(w)
		leaving := w.leaveBarrier(m)
		w.goOn(leaving)
		w.remove(session.Join(w.path, "strange"))
		leaving.get(w)
		w.wantList("children", w.children(w.path))
	})
}

// A Party's members have its word in their names; of a ShallowParty every child is one.
func TestForeignChildrenOfAParty(t *testing.T) {
	both(t, func(w *world) {
		w.create(w.path, strange...)
		c := w.client("client")
		p := w.party(c, "p1")
		w.join(p)
		w.wantMembers(p, "p1")
		w.leave(p)
		shallow := w.shallowParty(c, "p1")
		w.join(shallow)
		want := []string{"p1"}
		for _, name := range strange {
			want = append(want, party.ShallowIdentifier(name))
		}
		slices.Sort(want)
		w.wantMembers(shallow, want...)
		w.leave(shallow)
		w.wantStrange(w.path)
	})
}

// As every child of its party is a member, something is left for it; what stands among locks is in nobody's way.
func TestForeignChildrenOfASet(t *testing.T) {
	both(t, func(w *world) {
		locks := session.Join(w.path, "locks")
		w.create(locks, strange...)
		w.create(session.Join(locks, "0"), strange...)
		w.create(session.Join(w.path, "party"), "stranger")
		ps := w.partitioners(2)
		ps.start("0")
		ps.settle([]string{"0"})
		a := ps.all[0].Allocation()
		w.remove(session.Join(w.path, "party", "stranger"))
		ps.settle([]string{"0", "1"})
		if a.Valid() || context.Cause(a.Context()) == nil {
			w.Error("what it had before is valid still")
		}
		ps.finish(ps.all[0])
		w.wantStrange(locks)
		w.wantStrange(session.Join(locks, "0"))
		w.wantNothingLeft()
	})
}

// A counter may have children.
func TestForeignChildrenOfACounter(t *testing.T) {
	both(t, func(w *world) {
		w.create(w.path, strange...)
		c := w.counter()
		c.want(0)
		c.add(2)
		c.want(2)
		w.wantStrange(w.path)
	})
}
