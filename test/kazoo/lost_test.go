package kazoo_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/session"
)

// Whoever holds something is told that his session has expired, and the next one gets it, of which the lost hold's release takes
// nothing away.
func TestSessionLostWhileHolding(t *testing.T) {
	each(t, inTurns, func(w *world, r turns) {
		c := w.client("client")
		one, two := r.by(w, c, "one"), r.by(w, w.client("client2"), "two")
		h := acquire(w, one)
		waiter := acquireLater(w.Context(), w, two)
		w.goOn(waiter)
		w.wantStands(h)
		c.expireSession()
		w.wantLost(h, session.ErrSessionExpired)
		next := waiter.get(w)
		if next.Token() <= h.Token() {
			w.Errorf("token %d after %d", next.Token(), h.Token())
		}
		w.must(letGo(w, h))
		w.wantStands(next)
		release(w, next)
		again := acquire(w, one)
		w.wantStands(again)
		release(w, again)
		w.wantNothingLeft()
	})
}

// A persistent contender is no session's: nobody gets the lock before it is released.
func TestSessionLostWhileHoldingForGood(t *testing.T) {
	both(t, func(w *world) {
		c := w.client("client")
		h := acquire(w, w.lockBy(lock.New, c, lock.Options{Identifier: "one", Persistent: true}).Acquire)
		other := acquireLater(w.Context(), w, w.lock(w.client("client2"), "two").Acquire)
		c.expireSession()
		w.goOn(other)
		w.wantStands(h)
		release(w, h)
		release(w, other.get(w))
		w.wantList("children", w.children(w.path))
	})
}

// A lease is no session's either: it goes on, is renewed and released in the next one.
func TestSessionLostWhileLeasing(t *testing.T) {
	both(t, func(w *world) {
		c, clock := w.client("client"), newClock()
		h := acquire(w, w.lease(c, "one", 6, clock).Obtain)
		other := w.lease(w.client("client2"), "two", 6, clock)
		c.expireSession()
		if !h.Valid() || h.Context().Err() != nil {
			w.Errorf("the lease has ended with its session: %v", context.Cause(h.Context()))
		}
		clock.forward(4)
		w.must(h.Renew(w.Context()))
		clock.forward(4)
		if _, ok := try(w, other.Obtain, lease.ErrNotObtained); ok {
			w.Error("another has it, too")
		}
		if !h.Valid() {
			w.Error("not renewed")
		}
		release(w, h)
		if _, ok := try(w, other.Obtain, lease.ErrNotObtained); !ok {
			w.Error("not free after the release")
		}
		w.wantNothingLeft()
	})
}

// The others' leaving does not wait for a member whose session has expired, and that one knows.
func TestSessionLostInsideADoubleBarrier(t *testing.T) {
	both(t, func(w *world) {
		c, other := w.client("client"), w.client("client2")
		lost, stays := w.enterBoth(w.double(c, w.path, 2), w.double(other, w.path, 2))
		leaving := w.leaveBarrier(stays)
		w.goOn(leaving)
		c.expireSession()
		w.until("the end of the membership", func() bool { return lost.Context().Err() != nil })
		w.want(context.Cause(lost.Context()), session.ErrSessionExpired)
		if lost.Valid() {
			w.Error("a valid member")
		}
		leaving.get(w)
		w.leaveBarrier(lost).get(w)
		w.wantList("children", w.children(w.path))
	})
}

// enterBoth has two enter.
func (w *world) enterBoth(a, b *barrier.DoubleBarrier) (*barrier.Member, *barrier.Member) {
	w.Helper()
	entering := w.enter(a)
	second := w.enter(b).get(w)
	return entering.get(w), second
}

// What a member had falls to the others; FAILURE is its state, as in kazoo.
func TestSessionLostOfAMember(t *testing.T) {
	both(t, func(w *world) {
		ps := w.partitioners(2)
		lost := ps.client
		ps.start("0")
		ps.client = w.client("client2")
		ps.start("1")
		ps.settle([]string{"0"}, []string{"1"})
		p, a := ps.all[0], ps.all[0].Allocation()
		lost.expireSession()
		w.until("FAILURE", p.Failed)
		w.want(p.Snapshot().Err, session.ErrSessionExpired)
		ps.wantCause(a, session.ErrSessionExpired)
		if a.Valid() || p.Items() != nil {
			w.Errorf("valid: %v, items %q", a.Valid(), p.Items())
		}
		if _, ok := errors.AsType[*partitioner.FailedError](p.ReleaseSet(w.Context())); !ok {
			w.Error("released what it has lost")
		}
		ps.all = ps.all[1:]
		ps.settle([]string{"0", "1"})
		if token := ps.all[0].Allocation().Token("0"); token <= a.Token("0") {
			w.Errorf("token %d after %d", token, a.Token("0"))
		}
		ps.finish(p)
		ps.finish(ps.all[0])
		w.wantNothingLeft()
	})
}

// A member of a party is one again in the next session, which kazoo's is not.
func TestSessionLostOfAPartysMember(t *testing.T) {
	each(t, parties, func(w *world, in func(*world, *client, string) crowd) {
		c := w.client("client")
		p, other := in(w, c, "p1"), in(w, w.client("client2"), "p2")
		w.join(p)
		w.join(other)
		c.expireSession()
		id := c.incarnation().SessionID()
		w.until("our znode in the next session", func() bool {
			there, stat, err := w.looks().Exists(w.Context(), p.Node())
			w.must(err)
			return there && stat.EphemeralOwner == id && p.IsMember()
		})
		w.wantMembers(other, "p1", "p2")
		w.leave(p)
		w.wantMembers(other, "p2")
		w.leave(other)
		w.wantList("children", w.children(w.path))
	})
}

// parties are both kinds.
var parties = map[string]func(*world, *client, string) crowd{
	"Party":        (*world).party,
	"ShallowParty": (*world).shallowParty,
}
