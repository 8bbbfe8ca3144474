package kazoo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/session"
)

// The cases in place of those tests of kazoo's that do not run, or fail, with Go's recipes: see package suite.

const goNode = "_c_8eb60557ba51e0da67eefc47467d3f34-lock-0000000031"

// inLine makes kazoo's children: a contender of go-zookeeper's lock with number 31, and so many znodes that ours gets number 32.
func (w *world) inLine() {
	w.Helper()
	names := []string{"hello", goNode, "world", "lock", "lock__0000000000", "-lock-", "12345"}
	for i := len(names); i < 32; i++ {
		names = append(names, fmt.Sprint("before", i))
	}
	w.create(w.path, names...)
}

// wantNumber checks that ours is behind.
func (w *world) wantNumber(l *lock.Lock, identifier string) {
	w.Helper()
	list := must[[]lock.Contender](w)(l.Contenders(w.Context()))
	i := slices.IndexFunc(list, func(c lock.Contender) bool { return c.Identifier == identifier })
	if i < 0 || !strings.HasSuffix(list[i].Node, "__lock__0000000032") {
		w.Errorf("contenders %+v, want one with number 32", list)
	}
}

func TestLockBesideAnotherKind(t *testing.T) {
	both(t, func(w *world) {
		w.inLine()
		l := w.lock(w.client("client"), "python")
		h, ok := w.tryLock(l)
		if !ok {
			w.Fatal("by default it waits for the node of go-zookeeper")
		}
		w.wantNumber(l, "python")
		release(w, h)
	})
}

func TestLockWithExtraPatterns(t *testing.T) {
	both(t, func(w *world) {
		w.inLine()
		l := w.lockBy(lock.New, w.client("client"), lock.Options{Identifier: "python", ExtraPatterns: []string{"-lock-"}})
		ctx, cancel := context.WithCancel(w.Context())
		waiter := acquireLater(ctx, w, l.Acquire)
		w.untilContenders(2, l)
		w.wantNumber(l, "python")
		w.goOn(waiter)
		cancel()
		waiter.fails(w, context.Canceled)
		_, err := l.TryAcquire(w.Context())
		if blocked, ok := errors.AsType[*recipe.BlockedError](err); !ok || blocked.Blocker != session.Join(w.path, goNode) {
			w.Errorf("got %v, want it to be behind %s", err, goNode)
		}
	})
}

// The parent is ephemeral, so nothing can be created below it. kazoo's enter says nothing about it.
func TestEnterBelowAnEphemeral(t *testing.T) {
	both(t, func(w *world) {
		c := w.client("client")
		parent := session.Join(w.path, "some")
		d := w.double(c, session.Join(parent, "path"), 1)
		w.create(w.path)
		must[string](w)(c.incarnation().Create(w.Context(), parent, nil, session.Ephemeral))
		_, err := d.Enter(w.Context())
		w.want(err, session.ErrEphemeralParent)
		if d.Participating() {
			w.Error("it participates")
		}
	})
}

// A znode of our own that exists already is taken for the one that is to be created.
func TestEnterWithOwnZnode(t *testing.T) {
	both(t, func(w *world) {
		c := w.client("client")
		d := w.double(c, w.path, 1)
		w.create(w.path)
		must[string](w)(c.incarnation().Create(w.Context(), d.Node(), nil, session.Ephemeral))
		m := w.enter(d).get(w)
		if !d.Participating() || m.Node() != d.Node() {
			w.Error("it does not participate, or with another znode")
		}
		w.leaveBarrier(m).get(w)
		w.wantList("children", w.children(w.path))
	})
}

// A connection that comes back in time changes nothing here; what kazoo does then, the end of trust does.
func TestConnectionLossOfASet(t *testing.T) {
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
func TestJoinBesideALock(t *testing.T) {
	race(t, func(_ *partitioners, unlock func()) { unlock() })
}

// The second member gets the lock for which the first was waiting.
func TestJoinTakesALock(t *testing.T) {
	race(t, func(ps *partitioners, unlock func()) {
		ps.until("the first has given way", func() bool { return slices.Equal(ps.all[0].Items(), []string{"0"}) })
		unlock()
	})
}
