package kazoo_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/session"
)

// moments are when it happens what somebody waits for whose connections are cut: before he has another, or after.
var moments = []string{"while cut off", "after that"}

// eachMoment runs a case for each of some, at each moment.
func eachMoment[R any](t *testing.T, all map[string]R, test func(w *world, one R, moment string)) {
	t.Helper()
	type variant struct {
		one    R
		moment string
	}
	variants := map[string]variant{}
	for name, one := range all {
		for _, moment := range moments {
			variants[name+", "+moment] = variant{one, moment}
		}
	}
	each(t, variants, func(w *world, v variant) { test(w, v.one, v.moment) })
}

// cutOff has something happen while a client is cut off, or when it is connected again.
func (w *world) cutOff(c *client, moment string, happen func(), waiting interface{ ended() bool }) {
	w.Helper()
	id := c.incarnation().SessionID()
	c.shut()
	if moment == moments[0] {
		happen()
		w.goOn(waiting)
	}
	c.heal()
	if moment == moments[1] {
		_, _, err := c.incarnation().Exists(w.Context(), w.path) // once it is connected again
		w.must(err)
		w.goOn(waiting)
		happen()
	}
	if now := c.incarnation().SessionID(); now != id {
		w.Fatalf("session %#x is another than %#x", now, id)
	}
}

// Who waits in a line keeps his place.
func TestCutOffInLine(t *testing.T) {
	eachMoment(t, inTurns, func(w *world, r turns, moment string) {
		h := acquire(w, r.by(w, w.client("holder"), "holder"))
		c := w.client("client")
		wait := func(c *client, identifier string) (*call[held], string) {
			get := r.by(w, c, identifier)
			start := func() *call[held] { return acquireLater(w.Context(), w, get) }
			if r.line == nil {
				waiting := start()
				w.goOn(waiting)
				return waiting, ""
			}
			return joins(w, r.line(w), start)
		}
		one, place := wait(c, "one")
		var two *call[held]
		if r.line != nil {
			two, _ = wait(w.client("client2"), "two")
		}
		w.cutOff(c, moment, func() {
			release(w, h)
			if two != nil {
				w.goOn(two)
			}
		}, one)
		got := one.get(w)
		w.wantStands(got)
		if two == nil {
			release(w, got)
			return
		}
		if stands := got.Node() == session.Join(w.path, place) || r.line(w) != w.path; !stands {
			w.Errorf("it has %s, and was waiting as %s", got.Node(), place)
		}
		w.goOn(two)
		release(w, got)
		release(w, two.get(w))
		w.wantNothingLeft()
	})
}

// waiting is a call that waits for one thing.
type waiting struct {
	call   func() error
	begun  func() bool // the servers show that it waits; nil where they don't
	happen func()      // that thing
	after  func()      // what is to be done at last
}

// waits are those of the recipes, by a client and with the help of another.
var waits = map[string]func(w *world, c, other *client) waiting{
	"Queue.Get": func(w *world, c, other *client) waiting {
		q := w.queueOf(c)
		return waiting{
			call: func() error {
				value, err := q.Get(w.Context())
				if string(value) != "one" {
					w.Errorf("got %q", value)
				}
				return err
			},
			happen: func() {
				w.put(w.queueOf(other), "one", queue.DefaultPriority)
			},
			after: func() { w.wantLen(q, 0) },
		}
	},
	"LockingQueue.Get": func(w *world, c, other *client) waiting {
		q := w.lockingQueue(c)
		var got *queue.Held
		return waiting{
			call: func() (err error) {
				got, err = q.Get(w.Context())
				return err
			},
			happen: func() { w.put(w.lockingQueue(other), "one", queue.DefaultPriority) },
			after: func() {
				w.wantHolds(got, true)
				w.consume(got)
				w.wantLen(q, 0)
			},
		}
	},
	"Barrier.Wait": func(w *world, c, other *client) waiting {
		b, gate := w.barrier(c), w.barrier(other)
		w.must(gate.Create(w.Context()))
		return waiting{
			call: func() error { return b.Wait(w.Context()) },
			happen: func() {
				if !must[bool](w)(gate.Remove(w.Context())) {
					w.Error("there was none")
				}
			},
			after: func() {},
		}
	},
	// Meanwhile the other enters, and even begins to leave.
	"DoubleBarrier.Enter": func(w *world, c, other *client) waiting {
		var member, second *barrier.Member
		var leaving *call[struct{}]
		d := w.double(c, w.path, 2)
		return waiting{
			call: func() (err error) {
				member, err = d.Enter(w.Context())
				return err
			},
			begun: func() bool { return len(w.children(w.path)) == 1 },
			happen: func() {
				second = w.enter(w.double(other, w.path, 2)).get(w)
				leaving = w.leaveBarrier(second)
				w.until("ready has gone", func() bool { return !slices.Contains(w.children(w.path), "ready") })
			},
			after: func() {
				w.goOn(leaving)
				w.must(member.Leave(w.Context()))
				leaving.get(w)
				w.wantList("children", w.children(w.path))
			},
		}
	},
	"Member.Leave": func(w *world, c, other *client) waiting {
		one, two := w.enterBoth(w.double(c, w.path, 2), w.double(other, w.path, 2))
		var leaving *call[struct{}]
		return waiting{
			call: func() error { return one.Leave(w.Context()) },
			begun: func() bool { // the first in the order of names stays for the last
				names := w.children(w.path)
				return len(names) == 1 || one.Node() < two.Node() && !slices.Contains(names, "ready")
			},
			happen: func() {
				leaving = w.leaveBarrier(two)
				w.until("the other's znode has gone", func() bool {
					there, _, err := w.looks().Exists(w.Context(), two.Node())
					w.must(err)
					return !there
				})
			},
			after: func() {
				leaving.get(w)
				w.wantList("children", w.children(w.path))
			},
		}
	},
	"Party.WaitForMembers": func(w *world, c, other *client) waiting {
		p, second := w.party(c, "p1"), w.party(other, "p2")
		w.join(p)
		return waiting{
			call: func() error {
				list, err := p.WaitForMembers(w.Context(), 2)
				w.wantList("members", list, "p1", "p2")
				return err
			},
			happen: func() { w.join(second) },
			after: func() {
				w.leave(p)
				w.leave(second)
			},
		}
	},
	// There is a foreign contender before an item's lock.
	"SetPartitioner.WaitForAcquire": func(w *world, c, _ *client) waiting {
		const foreign = "514e5a831836450cb1a56c741e990fd8__lock__0000000000"
		lock := session.Join(w.path, "locks", "0")
		w.create(lock, foreign)
		ps := w.partitioners(1)
		ps.client = c
		ps.start("0")
		// The first contender is that of an attempt that does not wait. The second waits.
		var place string
		w.until("the partitioner waits", func() bool {
			for _, name := range w.children(lock) {
				if strings.HasSuffix(name, "__lock__0000000002") {
					place = session.Join(lock, name)
				}
			}
			return place != ""
		})
		return waiting{
			call: func() error {
				acquired, err := ps.all[0].WaitForAcquire(w.Context())
				if err == nil && !acquired {
					err = fmt.Errorf("not acquired: %v", ps.all[0].State())
				}
				return err
			},
			happen: func() { w.remove(session.Join(lock, foreign)) },
			after: func() {
				if a := ps.all[0].Allocation(); a == nil || a.Node("0") != place {
					w.Errorf("it has %+v, and was waiting as %s", a, place)
				}
				if state := ps.all[0].State(); state != partitioner.Acquired || !slices.Equal(ps.all[0].Items(), []string{"0"}) {
					w.Errorf("state %v, items %q", state, ps.all[0].Items())
				}
			},
		}
	},
}

// Every wait wakes when its client is connected again, and sees what has happened meanwhile. kazoo's barriers and queues hang.
func TestCutOffWhileWaiting(t *testing.T) {
	eachMoment(t, waits, func(w *world, prepare func(w *world, c, other *client) waiting, moment string) {
		c := w.client("client")
		one := prepare(w, c, w.client("client2"))
		waiter := later(w, func() (struct{}, error) { return struct{}{}, one.call() })
		if one.begun != nil {
			w.until("the call waits", one.begun)
		}
		w.goOn(waiter)
		w.cutOff(c, moment, one.happen, waiter)
		waiter.get(w)
		one.after()
	})
}
