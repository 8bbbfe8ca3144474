package barrier_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/sabotage"
	"github.com/kielgo/kiel/internal/sabotage/attack"
	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/session"
)

const oneIsTwo = "a process enters with what is left of itself"

// recipe-attacks.md §15: a member is killed while it waits, when one is missing, and started again. Its old znode stands until
// its session is over, and counts. Who says that nobody else has its identifier waits for that before it enters.
func TestRestartedWaitsForItsOldZnode(t *testing.T) {
	numbers(t, func(t *testing.T, n int) {
		attack.Run(t, oneIsTwo, func(a *attack.Attack) {
			x := newExecution(a)
			if err := x.srv.Create(path, nil); err != nil {
				a.Fatal(err)
			}
			crowd := x.crowd(n-1, false)
			entered := x.gate() // nobody leaves before: of three, the last to look might not know that they were there
			for _, p := range crowd {
				p.stops("leave: ready", entered.pass)
			}
			for _, p := range crowd[1:] {
				p.goThrough(n)
			}
			unique := func(client string) *barrier.DoubleBarrier {
				d, err := barrier.NewDouble(x.session(client), path, n, barrier.DoubleOptions{Identifier: "g", Unique: true})
				if err != nil {
					a.Fatal(err)
				}
				return d
			}
			x.enter(unique("killed"))
			x.until("all but one", func() bool { return len(x.srv.Children(path)) == n-1 })
			link := x.nw.Client("killed")
			link.Refuse()
			link.Cut()
			defer link.Heal()
			g := x.enter(unique("g"))
			time.Sleep(30 * time.Second)
			if g.ended() {
				a.Harmed(oneIsTwo, "%v; znodes:\n%s", g.err, x.srv.Dump())
			} else {
				crowd[0].goThrough(n)
				x.over("enter", crowd...)
			}
			in := x.ends("enter", g, nil)
			entered.open()
			if in && g.m != nil {
				x.ends("leave", x.leave(g.m), nil)
			}
		}, sabotage.RemainsGone)
	})
}

// Enter says what it waits for, and a handle of ours is not in its own way: not its znode of the round before, and not that of
// a session that expired.
func TestUnique(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.session("g")
		d, err := barrier.NewDouble(s, path, 1, barrier.DoubleOptions{Identifier: "g", Unique: true})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			w.ended(w.leave(t.Context(), w.in(w.enter(t.Context(), d))), nil)
		}
		other := w.in(w.enter(t.Context(), w.double(w.session("other"), 1, "g")))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		blocked := &barrier.BlockedError{}
		if _, err := d.Enter(ctx); !errors.As(err, &blocked) || blocked.Blocker != other.Node() || blocked.Identifier != "g" ||
			!errors.Is(err, context.DeadlineExceeded) || errors.Is(err, session.ErrUncertain) {
			t.Errorf("got %v", err)
		}
		w.ended(w.leave(t.Context(), other), nil)
		two, err := barrier.NewDouble(s, path, 2, barrier.DoubleOptions{Identifier: "g", Unique: true})
		if err != nil {
			t.Fatal(err)
		}
		g := w.enter(t.Context(), two)
		w.goesOn(g)
		w.srv.KillSession(w.id(s))
		w.goesOn(g)
		third := w.in(w.enter(t.Context(), w.double(w.session("third"), 2, "")))
		leaving := w.leave(t.Context(), w.in(g))
		w.ended(w.leave(t.Context(), third), nil)
		w.ended(leaving, nil)
	})
}

// recipe-attacks.md §15, where identifiers don't tell who is who: kazoo gives one to all objects of a process, and so do we
// unless told. Then no rule can prevent that a member of two crosses with what is left of it: nobody can tell the znode of the
// dead from that of the living. All that is kept is that it does not leave alone, and that the next round begins anew.
func TestRestartedCrossesWithItsOldZnode(t *testing.T) {
	for what, start := range map[string]func(x *execution, name string) (in, out func()){
		"Python": func(x *execution, name string) (in, out func()) {
			p := x.python(name)
			p.goThrough(2)
			return func() { x.over("enter", p) }, func() { x.over("leave", p) }
		},
		"ours": func(x *execution, name string) (in, out func()) {
			c := x.enter(x.double(x.session("python "+name), 2, "one identifier"))
			return func() { x.ends("enter", c, nil) }, func() { x.ends("leave", x.leave(c.m), nil) }
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newPlainExecution(t)
				if err := x.srv.Create(path, nil); err != nil {
					t.Fatal(err)
				}
				const name, again = "00000000000000000000000000000000", "11111111111111111111111111111111"
				start(x, name)
				x.until("the first one", func() bool { return len(x.srv.Children(path)) == 1 })
				link := x.nw.Client("python " + name)
				link.Refuse()
				link.Cut() // it is killed
				begun := time.Now()
				in, out := start(x, again)
				in()
				if d := time.Since(begun); d > time.Second {
					t.Errorf("it went in after %v", d)
				}
				out()
				if d := time.Since(begun); d < 5*time.Second || d > 30*time.Second {
					t.Errorf("it went out after %v, and the session of the old one is over after about 10 s", d)
				}
				if left := x.srv.Children(path); len(left) != 0 {
					t.Errorf("left: %q", left)
				}
				x.goesOn(x.enter(x.double(x.session("g"), 2, "")))
				link.Heal()
			})
		})
	}
}

// recipe-attacks.md §15, two of ours with one identifier, each Unique, that enter at once: neither sees the other before its own
// znode is made, and by the time that it could, a third has counted both and entered. Taking one back would not mend that. The
// doc says so; what comes of it is that all three cross.
func TestTwoUniqueAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if err := w.srv.Create(path, nil); err != nil {
			t.Fatal(err)
		}
		clients := []string{"one", "two"}
		sessions := []*session.Session{w.session(clients[0]), w.session(clients[1])}
		for i, s := range sessions { // so that both look at the same time
			w.id(s)
			w.nw.Client(clients[i]).Delay(50 * time.Millisecond)
		}
		var calls []*call
		for _, s := range sessions {
			d, err := barrier.NewDouble(s, path, 3, barrier.DoubleOptions{Identifier: "g", Unique: true})
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, w.enter(t.Context(), d))
		}
		third := w.double(w.session("third"), 3, "")
		start := time.Now()
		for len(w.srv.Children(path)) < 2 {
			if time.Since(start) > time.Minute {
				t.Fatalf("one of them waits; znodes:\n%s", w.srv.Dump())
			}
			time.Sleep(time.Millisecond)
		}
		stood := time.Now()
		m := w.in(w.enter(t.Context(), third))
		if d := time.Since(stood); d >= 50*time.Millisecond {
			t.Errorf("the third entered after %v: the others may have looked before", d)
		}
		in := []*barrier.Member{m, w.in(calls[0]), w.in(calls[1])} // all, before the first leaves
		var leaving []*call
		for _, m := range in {
			leaving = append(leaving, w.leave(t.Context(), m))
		}
		for _, c := range leaving {
			w.ended(c, nil)
		}
	})
}
