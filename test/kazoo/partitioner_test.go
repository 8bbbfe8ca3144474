package kazoo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/session"
)

// partitioners are a case's members, all with the same set and in one session, as in kazoo's tests.
type partitioners struct {
	*world
	client *client
	items  []string
	all    []*partitioner.SetPartitioner
}

func (w *world) partitioners(size int, change ...func(*session.Options)) *partitioners {
	w.Helper()
	ps := &partitioners{world: w, client: w.client("client", change...)}
	for i := range size {
		ps.items = append(ps.items, strconv.Itoa(i))
	}
	return ps
}

// start adds members.
func (ps *partitioners) start(identifiers ...string) {
	ps.Helper()
	for _, id := range identifiers {
		opts := partitioner.Options{Identifier: id, TimeBoundary: 200 * time.Millisecond, AcquireTimeout: limit}
		p := must[*partitioner.SetPartitioner](ps.world)(partitioner.New(ps.client.Session, ps.path, ps.items, opts))
		ps.must(p.Start(ps.Context()))
		ps.all = append(ps.all, p)
		ps.Cleanup(func() { ps.finish(p) })
	}
}

func (ps *partitioners) finish(p *partitioner.SetPartitioner) {
	ps.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ps.Context()), limit)
	defer cancel()
	if err := p.Finish(ctx); err != nil {
		ps.Error(err)
	}
}

func (ps *partitioners) release(p *partitioner.SetPartitioner) {
	ps.Helper()
	ctx, cancel := context.WithTimeout(ps.Context(), limit)
	defer cancel()
	ps.must(p.ReleaseSet(ctx))
}

// settle waits until all have what they shall have. Who must release meanwhile does: on a slow machine a member can begin to work
// before the next one has come.
func (ps *partitioners) settle(want ...[]string) {
	ps.Helper()
	ps.until(fmt.Sprintf("division into %q", want), func() bool {
		settled := true
		for i, p := range ps.all {
			if p.MustRelease() {
				ps.release(p)
			}
			settled = settled && p.Acquired() && slices.Equal(p.Items(), want[i])
		}
		return settled
	})
}

// untilRelease waits until members must release what they have.
func (ps *partitioners) untilRelease(members ...*partitioner.SetPartitioner) {
	ps.Helper()
	for _, p := range members {
		ps.until("RELEASE of "+p.Identifier(), p.MustRelease)
		if items := p.Items(); items != nil {
			ps.Errorf("%s has %q, which it must release", p.Identifier(), items)
		}
	}
}

// wantCause checks how an allocation ended.
func (ps *partitioners) wantCause(a *partitioner.Allocation, want error) {
	ps.Helper()
	ps.want(context.Cause(a.Context()), want)
}

func TestPartitioner_PartyOfOne(t *testing.T) {
	both(t, func(w *world) {
		ps := w.partitioners(3)
		ps.start("") // the default identifier
		if !must[bool](w)(ps.all[0].WaitForAcquire(w.Context())) {
			w.Errorf("not acquired within %v", limit)
		}
		ps.settle([]string{"0", "1", "2"})
		a := ps.all[0].Allocation()
		ps.finish(ps.all[0])
		ps.wantCause(a, partitioner.ErrFinished)
		if !ps.all[0].Failed() || ps.all[0].Items() != nil {
			w.Errorf("state %v, items %q", ps.all[0].State(), ps.all[0].Items())
		}
	})
}

func TestPartitioner_PartyOfTwo(t *testing.T) {
	both(t, func(w *world) {
		ps := w.partitioners(2)
		ps.start("0", "1")
		ps.settle([]string{"0"}, []string{"1"})
		ps.finish(ps.all[0])
		ps.untilRelease(ps.all[1])
		if must[bool](w)(ps.all[1].WaitForAcquire(w.Context())) {
			w.Error("acquired in RELEASE")
		}
		ps.release(ps.all[1])
		ps.all = ps.all[1:]
		ps.settle([]string{"0", "1"})
	})
}

func TestPartitioner_PartyExpansion(t *testing.T) {
	both(t, func(w *world) {
		ps := w.partitioners(3)
		ps.start("0", "1")
		ps.settle([]string{"0", "2"}, []string{"1"})
		a, changed := ps.all[0].Allocation(), ps.all[0].Snapshot().Changed()
		ps.start("2")
		ps.untilRelease(ps.all[0], ps.all[1])
		ps.wantCause(a, partitioner.ErrMembersChanged)
		select {
		case <-changed:
		default:
			w.Error("the change was not told")
		}
		ps.release(ps.all[1])
		if ps.all[2].Acquired() {
			w.Errorf("2 has %q while 0 has not released", ps.all[2].Items())
		}
		ps.release(ps.all[0])
		ps.settle([]string{"0"}, []string{"1"}, []string{"2"})
		if token := ps.all[2].Allocation().Token("2"); token <= a.Token("2") {
			w.Errorf("token %d after %d", token, a.Token("2"))
		}
	})
}

func TestPartitioner_MoreMembersThanSetItems(t *testing.T) {
	both(t, func(w *world) {
		ps := w.partitioners(1)
		ps.start("0", "1")
		ps.settle([]string{"0"}, nil)
	})
}

func TestPartitioner_PartySessionFailure(t *testing.T) {
	both(t, func(w *world) {
		ps := w.partitioners(3)
		ps.start("0")
		ps.settle([]string{"0", "1", "2"})
		p, a := ps.all[0], ps.all[0].Allocation()
		ps.client.expireSession()
		w.until("FAILURE", p.Failed)
		w.want(p.Snapshot().Err, session.ErrSessionExpired)
		ps.wantCause(a, session.ErrSessionExpired)
		if err := p.ReleaseSet(w.Context()); !p.Failed() {
			w.Errorf("state %v, %v", p.State(), err)
		} else if _, ok := errors.AsType[*partitioner.FailedError](err); !ok {
			w.Errorf("got %v", err)
		}
		w.must(p.Start(w.Context())) // anew
		ps.settle([]string{"0", "1", "2"})
	})
}

// A connection that comes back in time changes nothing here; what kazoo does then, the end of trust does.
func TestPartitioner_ConnectionLoss(t *testing.T) {
	both(t, func(w *world) {
		ps := w.partitioners(3, func(opts *session.Options) { opts.Timeout = 20 * time.Second }) // 2/3 of it is waited for
		ps.start("0", "1")
		ps.settle([]string{"0", "2"}, []string{"1"})
		allocations := []*partitioner.Allocation{ps.all[0].Allocation(), ps.all[1].Allocation()}
		ps.client.cut()
		_, _, err := ps.client.incarnation().Exists(w.Context(), w.path) // once it is connected again
		w.must(err)
		for i, p := range ps.all {
			if p.Allocation() != allocations[i] {
				w.Errorf("%s: state %v after a short break", p.Identifier(), p.State())
			}
		}

		ps.client.deafen()
		ps.untilRelease(ps.all...)
		ps.client.heal()
		for i, a := range allocations {
			ps.wantCause(a, session.ErrTrustLost)
			w.wantList("contenders", w.locksOf(a), a.Items()...) // nobody else may have them yet
			ps.release(ps.all[i])
		}
		ps.settle([]string{"0", "2"}, []string{"1"})

		ps.start("2")
		ps.untilRelease(ps.all[0], ps.all[1])
		ps.settle([]string{"0"}, []string{"1"}, []string{"2"})
	})
}

// locksOf returns the items of an allocation whose contenders exist.
func (w *world) locksOf(a *partitioner.Allocation) []string {
	w.Helper()
	var items []string
	for _, item := range a.Items() {
		there, _, err := w.looks().Exists(w.Context(), a.Node(item))
		w.must(err)
		if there {
			items = append(items, item)
		}
	}
	return items
}

// race has one member wait for its second lock, before which there is a contender of somebody else: kazoo's tests delay locks
// instead. Then a second member joins.
func race(t *testing.T, then func(ps *partitioners, unlock func())) {
	t.Helper()
	both(t, func(w *world) {
		ps := w.partitioners(2)
		const foreign = "514e5a831836450cb1a56c741e990fd8__lock__0000000000"
		first, second := session.Join(w.path, "locks", "0"), session.Join(w.path, "locks", "1")
		w.create(second, foreign)
		ps.start("0")
		w.untilChildren(1, first)
		w.untilChildren(2, second)
		ps.start("1")
		if !ps.all[0].Allocating() || !ps.all[1].Allocating() {
			w.Errorf("states %v and %v, with a lock that somebody else has", ps.all[0].State(), ps.all[1].State())
		}
		then(ps, func() { w.remove(session.Join(second, foreign)) })
		ps.settle([]string{"0"}, []string{"1"})
	})
}

// The first member gets the second lock while the other joins.
func TestPartitioner_RaceConditionNewPartitionerDuringTheLock(t *testing.T) {
	race(t, func(_ *partitioners, unlock func()) { unlock() })
}

// The second member gets the lock for which the first was waiting.
func TestPartitioner_RaceConditionNewPartitionerStealsTheLock(t *testing.T) {
	race(t, func(ps *partitioners, unlock func()) {
		ps.until("the first has given way", func() bool { return slices.Equal(ps.all[0].Items(), []string{"0"}) })
		unlock()
	})
}
