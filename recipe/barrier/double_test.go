package barrier_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestBasicBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.session("a")
		d := w.double(s, 1, "café")
		if d.Participating() || d.Clients() != 1 {
			t.Error("participates")
		}
		m, err := d.Enter(t.Context())
		if err != nil || !d.Participating() {
			t.Fatal(err)
		}
		data, stat, _ := w.srv.Get(m.Node())
		if string(data) != "café" || stat.EphemeralOwner != w.id(s) || m.Node() != d.Node() || len(nameOf(d)) != 32 {
			t.Errorf("%s: %q, %+v", m.Node(), data, stat)
		}
		if data, stat, ok := w.srv.Get(path + "/ready"); !ok || data == nil || len(data) != 0 || stat.EphemeralOwner != 0 {
			t.Errorf("ready: %q, %+v, %v", data, stat, ok)
		}
		if _, err := d.Enter(t.Context()); !errors.Is(err, barrier.ErrEntered) {
			t.Errorf("a second time: %v", err)
		}
		if err := m.Leave(t.Context()); err != nil || d.Participating() {
			t.Error(err)
		}
		if cause := context.Cause(m.Context()); !errors.Is(cause, barrier.ErrLeft) {
			t.Error(cause)
		}
		w.wantChildren()
		if m, err = d.Enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := m.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.wantChildren()
	})
}

func TestTwoBarrier(t *testing.T)   { together(t, 2) }
func TestThreeBarrier(t *testing.T) { together(t, 3) }

// together has n enter and leave, three times.
func together(t *testing.T, n int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.session("a")
		doubles := make([]*barrier.DoubleBarrier, n)
		for i := range doubles {
			doubles[i] = w.double(s, n, "")
			s = w.session("of its own " + string(rune('0'+i)))
		}
		for range 3 {
			var calls []*call
			for i, d := range doubles {
				for _, c := range calls {
					w.goesOn(c)
				}
				if i > 0 && doubles[0].Participating() {
					t.Error("participates alone")
				}
				calls = append(calls, w.enter(t.Context(), d))
			}
			var leaving []*call
			for _, c := range calls {
				w.in(c)
			}
			for i, c := range calls {
				if !doubles[i].Participating() {
					t.Error("does not participate")
				}
				for _, l := range leaving {
					w.goesOn(l)
				}
				leaving = append(leaving, w.leave(t.Context(), c.m))
			}
			for _, l := range leaving {
				w.ended(l, nil)
			}
			w.wantChildren()
		}
	})
}

func TestBarrierExistingParentNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.session("a")
		d := w.double(s, 1, "")
		inc, err := s.Incarnation(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := inc.Create(t.Context(), "/app", nil, session.Ephemeral); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Enter(t.Context()); !errors.Is(err, session.ErrEphemeralParent) || d.Participating() {
			t.Errorf("got %v", err)
		}
	})
}

func TestBarrierExistingNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.session("a")
		d := w.double(s, 1, "")
		inc, err := s.Incarnation(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := inc.EnsurePath(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		if _, err := inc.Create(t.Context(), d.Node(), nil, session.Ephemeral); err != nil {
			t.Fatal(err)
		}
		m, err := d.Enter(t.Context())
		if err != nil || !d.Participating() {
			t.Fatal(err)
		}
		w.wantChildren(nameOf(d), "ready")
		if err := m.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.wantChildren()
	})
}

const (
	lowest  = "00000000000000000000000000000000"
	highest = "ffffffffffffffffffffffffffffffff"
)

// atNextLook does something just before the client's next look at the directory.
func (w *world) atNextLook(client string, do func()) {
	done := false
	w.srv.SetHook(func(r *zktest.Request) zktest.Action {
		if r.Op == zktest.OpGetChildren2 && r.Path == path && r.Client == client && !done {
			done = true
			do()
		}
		return zktest.Action{}
	})
	w.Cleanup(func() {
		if !done {
			w.Error("the hook was not used")
		}
	})
}

// Three: what happened while one was away may have been that all stood, or that two came and
// left one after the other. And what can't have been that is waited through.
func TestUndecided(t *testing.T) {
	for what, tt := range map[string]struct {
		do   func(w *world)
		want error // nil: it goes on
	}{
		"two, perhaps at once": {func(w *world) {
			w.make(lowest, highest, "ready")
			w.remove("ready", lowest, highest)
		}, session.ErrUncertain},
		"one and ready": {func(w *world) {
			w.make(lowest, highest, "ready")
			w.remove("ready", highest)
		}, session.ErrUncertain},
		"two, and nobody was told": {func(w *world) {
			w.make(lowest, highest)
			w.remove(lowest, highest)
		}, nil},
		"one": {func(w *world) {
			w.make(lowest)
			w.remove(lowest)
		}, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			d := w.double(w.session("a"), 3, "")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := w.enter(ctx, d)
			w.goesOn(c)
			w.nw.Client("a").Refuse()
			w.nw.Client("a").Cut()
			time.Sleep(time.Second)
			tt.do(w)
			w.nw.Client("a").Heal()
			if tt.want == nil {
				w.goesOn(c)
				cancel()
				w.ended(c, context.Canceled)
			} else {
				w.ended(c, tt.want)
			}
			time.Sleep(5 * time.Second)
			if _, _, ok := w.srv.Get(d.Node()); ok {
				t.Errorf("%s: it stands still", what)
			}
		})
	}
}

// One of those who wait goes and comes again under its name while nobody looks, and the
// number is complete: that is no sign that anybody was told.
func TestNameUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		d := w.double(w.session("a"), 3, "")
		c := w.enter(t.Context(), d)
		w.goesOn(c)
		w.make(highest)
		w.goesOn(c)
		w.nw.Client("a").Refuse()
		w.nw.Client("a").Cut()
		w.remove(highest)
		w.make(highest, lowest)
		w.nw.Client("a").Heal()
		w.goesOn(c)
		w.make("ready")
		m := w.in(c)
		w.remove(lowest, highest)
		w.ended(w.leave(t.Context(), m), nil)
	})
}

// Round after round on one path, while links are slow and break for those who leave: nobody enters a round before all have left the one before.
func TestRounds(t *testing.T) {
	for n := 2; n <= 4; n++ {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			const rounds = 30
			var begun, left atomic.Int64
			var wg sync.WaitGroup
			stop := make(chan struct{})
			for i := range n {
				name := string(rune('a' + i))
				s := w.session(name)
				d := w.double(s, n, name)
				random := rand.New(rand.NewPCG(uint64(n), uint64(i)))
				wg.Go(func() {
					for round := range int64(rounds) {
						time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond)
						begun.Add(1)
						m, err := d.Enter(t.Context())
						if err != nil {
							t.Errorf("%s: round %d: %v", name, round, err)
							return
						}
						if b, l := begun.Load(), left.Load(); b < int64(n)*(round+1) || l < int64(n)*round {
							t.Errorf("%s: in round %d when %d had begun and %d had left", name, round, b, l)
						}
						time.Sleep(time.Duration(100+random.IntN(3)) * time.Millisecond) // longer than some round trips
						left.Add(1)
						if err := m.Leave(t.Context()); err != nil {
							t.Errorf("%s: round %d: %v", name, round, err)
							return
						}
						if l := left.Load(); l < int64(n)*(round+1) {
							t.Errorf("%s: left round %d when %d had left", name, round, l)
						}
					}
				})
			}
			wg.Go(func() {
				random := rand.New(rand.NewPCG(uint64(n), 99))
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Duration(random.IntN(60)) * time.Millisecond):
					}
					if random.IntN(3) == 0 {
						w.srv.LoseReply(1, is(zktest.OpDelete))
					} else {
						w.nw.Client(string(rune('a' + random.IntN(n)))).Delay(time.Duration(random.IntN(5)) * time.Millisecond)
					}
				}
			})
			start := time.Now()
			for left.Load() < int64(n*rounds) && time.Since(start) < 10*time.Minute && !t.Failed() {
				time.Sleep(time.Second)
			}
			close(stop)
			if left.Load() < int64(n*rounds) {
				t.Fatalf("%d of %d; znodes:\n%s", left.Load(), n*rounds, w.srv.Dump())
			}
			wg.Wait()
		})
	}
}

// The session expires under one that waits. If the others entered with it and left, that can't
// be known; if nothing happened, it waits on, with another znode.
func TestSessionKilledWhileWaiting(t *testing.T) {
	for _, passed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			s := w.session("a")
			d := w.double(s, 2, "")
			c := w.enter(t.Context(), d)
			w.goesOn(c)
			id := w.id(s)
			w.nw.Client("a").Refuse()
			w.nw.Client("a").Cut()
			if passed {
				w.make(highest, "ready")
				w.remove("ready")
			}
			w.srv.KillSession(id)
			if passed {
				w.remove(highest)
			}
			w.nw.Client("a").Heal()
			if passed {
				w.ended(c, session.ErrUncertain)
				return
			}
			w.goesOn(c)
			if w.id(s) == id {
				t.Fatal("the session is the same")
			}
			w.wantChildren(nameOf(d))
			w.make(highest, "ready")
			m := w.in(c)
			w.remove(highest)
			w.ended(w.leave(t.Context(), m), nil)
		})
	}
}

// The session expires under one that waits, and then another comes: they enter together.
func TestSessionKilledThenComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.session("a")
		d := w.double(s, 2, "")
		c := w.enter(t.Context(), d)
		w.goesOn(c)
		id := w.id(s)
		w.nw.Client("a").Refuse()
		w.nw.Client("a").Cut()
		w.srv.KillSession(id)
		w.make(highest)
		w.nw.Client("a").Heal()
		m := w.in(c)
		w.wantChildren(nameOf(d), highest, "ready")
		w.remove(highest)
		w.ended(w.leave(t.Context(), m), nil)
	})
}

// A ready that was left behind is removed if nobody stands beside it, and left alone if
// somebody does: its removal would use up the only watch of a Python process.
func TestStaleReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.make("ready")
		d := w.double(w.session("a"), 2, "")
		c := w.enter(t.Context(), d)
		w.goesOn(c)
		w.wantChildren(nameOf(d))
		w.make("ready")
		m := w.in(c)
		w.ended(w.leave(t.Context(), m), nil)

		w.make(highest, "ready")
		_, before, _ := w.srv.Get(path + "/ready")
		third := w.double(w.session("b"), 3, "")
		m = w.in(w.enter(t.Context(), third))
		if _, now, ok := w.srv.Get(path + "/ready"); !ok || now != before {
			t.Errorf("ready: %v, %+v, was %+v", ok, now, before)
		}
		l := w.leave(t.Context(), m)
		w.goesOn(l)
		w.remove(highest)
		w.ended(l, nil)
		w.wantChildren()
	})
}

// Only the one that completes the number makes ready, and leaving deletes it before the own
// znode. kazoo's order of leaving: the lowest stays until the others have gone.
func TestReadyAndTheOrderOfLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var deleted []string
		made := 0
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpDelete {
				deleted = append(deleted, r.Path)
			}
			if r.Op == zktest.OpMulti {
				for _, op := range r.Ops {
					if op.Op == zktest.OpCreate && op.Path == path+"/ready" {
						made++
					}
				}
			}
			return zktest.Action{}
		})
		d := w.double(w.session("a"), 2, "")
		w.make(lowest)
		m := w.in(w.enter(t.Context(), d))
		if made != 1 {
			t.Errorf("ready was made %d times", made)
		}
		// Not the lowest: goes, and waits for the lowest.
		l := w.leave(t.Context(), m)
		w.goesOn(l)
		w.wantChildren(lowest)
		if len(deleted) != 2 || deleted[0] != path+"/ready" || deleted[1] != m.Node() {
			t.Errorf("deleted %q", deleted)
		}
		w.make("1") // who comes now is not waited for
		w.remove(lowest)
		w.ended(l, nil)
		w.remove("1")

		// The lowest: stays until the highest has gone. It was first, so the other made ready.
		deleted, made = nil, 0
		c := w.enter(t.Context(), d)
		w.goesOn(c)
		w.make(highest)
		w.goesOn(c) // until the other has looked, and says so
		w.make("ready")
		m = w.in(c)
		w.goesOn(w.later(func() error { <-m.Context().Done(); return nil }))
		l = w.leave(t.Context(), m)
		w.goesOn(l)
		w.wantChildren(nameOf(d), highest)
		w.remove(highest)
		w.ended(l, nil)
		w.wantChildren()
		if made != 0 {
			t.Errorf("ready was made %d times", made)
		}
		// The third of two does not make ready again. It is the second when another has gone.
		w.make(lowest, highest)
		c = w.enter(t.Context(), d)
		w.goesOn(c)
		if made != 0 {
			t.Errorf("ready was made %d times", made)
		}
		w.remove(lowest)
		m = w.in(c)
		if made != 1 {
			t.Errorf("ready was made %d times", made)
		}
		w.remove(highest)
		w.ended(w.leave(t.Context(), m), nil)
	})
}

// Whatever reply is lost, nothing is left behind and everybody enters and leaves.
func TestLostReplies(t *testing.T) {
	for _, op := range []zktest.Op{zktest.OpCreate, zktest.OpMulti, zktest.OpDelete, zktest.OpGetChildren2, zktest.OpExists, zktest.OpSync} {
		for losses := 1; losses <= 3; losses++ {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				a, b := w.double(w.session("a"), 2, ""), w.double(w.session("b"), 2, "")
				w.srv.LoseReply(losses, func(r zktest.Request) bool { // not proofs of life
					return r.Op == op && (op != zktest.OpMulti || len(r.Ops) > 1)
				})
				one := w.enter(t.Context(), a)
				time.Sleep(time.Second)
				two := w.enter(t.Context(), b)
				w.in(one)
				w.in(two)
				l := w.leave(t.Context(), one.m)
				time.Sleep(time.Second)
				w.ended(w.leave(t.Context(), two.m), nil)
				w.ended(l, nil)
				w.wantChildren()
			})
		}
	}
}

// The caller gives up while it waits, or while its create is under way: nothing is left, and
// the handle can be used again.
func TestGivingUp(t *testing.T) {
	for _, dir := range []zktest.Direction{0, zktest.ToServer, zktest.ToClient} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			d := w.double(w.session("a"), 2, "")
			w.atNextLook("a", func() { w.nw.Client("a").BlackHole(dir) })
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := d.Enter(ctx)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if blocked, ok := errors.AsType[*barrier.BlockedError](err); dir == 0 && (!ok || blocked.Members != 1 || blocked.Clients != 2) {
				t.Errorf("got %v", err)
			}
			w.nw.Client("a").Heal()
			time.Sleep(5 * time.Second)
			w.wantChildren()
			c := w.enter(t.Context(), d)
			w.goesOn(c)
			w.make(highest, "ready")
			m := w.in(c)
			// And while it leaves.
			ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err = m.Leave(ctx)
			if blocked, ok := errors.AsType[*barrier.BlockedError](err); !ok || blocked.Blocker != path+"/"+highest {
				t.Errorf("got %v", err)
			}
			time.Sleep(time.Second)
			w.wantChildren(highest)
		})
	}
}

// What ends a member's context, and that it can leave then.
func TestLost(t *testing.T) {
	for what, tt := range map[string]struct {
		do    func(w *world, s *session.Session, m *barrier.Member)
		want  error
		stays bool
	}{
		"removed": {func(w *world, _ *session.Session, m *barrier.Member) { w.remove(m.Node()[len(path)+1:]) }, barrier.ErrLost, false},
		"expired": {func(w *world, s *session.Session, _ *barrier.Member) { w.srv.KillSession(w.id(s)) }, session.ErrSessionExpired, false},
		"no trust": {func(w *world, _ *session.Session, m *barrier.Member) {
			w.nw.Client("a").BlackHole(zktest.Both)
			<-m.Context().Done()
			w.nw.Client("a").Heal()
		}, session.ErrTrustLost, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			s := w.session("a")
			d := w.double(s, 2, "")
			w.make(lowest)
			m := w.in(w.enter(t.Context(), d))
			tt.do(w, s, m)
			w.ended(w.later(func() error { <-m.Context().Done(); return context.Cause(m.Context()) }), tt.want)
			time.Sleep(5 * time.Second)
			if _, _, ok := w.srv.Get(m.Node()); ok != tt.stays || d.Participating() {
				t.Errorf("%s: stands: %v", what, ok)
			}
			l := w.leave(t.Context(), m)
			w.goesOn(l)
			w.remove(lowest)
			w.ended(l, nil)
		})
	}
}
