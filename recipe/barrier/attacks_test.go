package barrier_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/sabotage"
	"github.com/kielgo/kiel/internal/sabotage/attack"
	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The harms that executions here do.
const (
	hang    = "somebody waits for ever"
	refused = "nobody gets in"
)

// execution is a run of an execution: G is a process of ours, on the network as "g", the others are Python.
type execution struct {
	*world
	a  *attack.Attack
	wg sync.WaitGroup // of what Python does
}

func newExecution(a *attack.Attack) *execution {
	x := &execution{world: newWorld(a.T), a: a}
	a.Cleanup(x.wg.Wait) // the last but the server's: what it waits for was ended by others
	return x
}

// enter has d entered in the background, until the test ends.
func (x *execution) enter(d *barrier.DoubleBarrier) *call {
	ctx, cancel := context.WithCancel(context.WithoutCancel(x.a.Context()))
	c := x.world.enter(ctx, d)
	x.Cleanup(func() {
		cancel()
		<-c.done
		if c.m != nil {
			_ = c.m.Leave(ctx)
		}
	})
	return c
}

// later does something in the background, under a context that ends with the test.
func (x *execution) later(f func(ctx context.Context) error) *call {
	ctx, cancel := context.WithCancel(context.WithoutCancel(x.a.Context()))
	c := x.world.later(func() error { return f(ctx) })
	x.Cleanup(func() {
		cancel()
		<-c.done
	})
	return c
}

func (x *execution) leave(m *barrier.Member) *call { return x.later(m.Leave) }

// ends waits for a call of ours. That it goes on is harm; another error than this is a failure.
func (x *execution) ends(what string, c *call, want error) bool {
	x.Helper()
	select {
	case <-c.done:
	case <-time.After(time.Minute):
		x.a.Harmed(hang, "%s goes on; znodes:\n%s", what, x.srv.Dump())
		return false
	}
	if !errors.Is(c.err, want) {
		x.Errorf("%s: got %v, want %v", what, c.err, want)
	}
	return true
}

// over waits for Python's calls.
func (x *execution) over(what string, pythons ...*python) {
	x.Helper()
	for _, p := range pythons {
		if !p.over(x.world, what) {
			x.a.Harmed(hang, "%s: %s goes on; znodes:\n%s", p.node, what, x.srv.Dump())
		}
	}
}

// until waits for what comes with all rules and without.
func (x *execution) until(what string, ok func() bool) {
	x.Helper()
	for range 60_000 {
		if ok() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	x.Fatalf("%s does not come; znodes:\n%s", what, x.srv.Dump())
}

// only reports whether these children stand and no others.
func (x *execution) only(names ...string) func() bool {
	return func() bool { return strings.Join(x.srv.Children(path), " ") == strings.Join(names, " ") }
}

func (x *execution) stands(name string) func() bool {
	return func() bool { _, _, ok := x.srv.Get(path + "/" + name); return ok }
}

// gate is passed once it was opened.
type gate struct {
	once sync.Once
	c    chan struct{}
}

func newGate() *gate  { return &gate{c: make(chan struct{})} }
func (g *gate) open() { g.once.Do(func() { close(g.c) }) }
func (g *gate) pass() { <-g.c }
func (x *execution) gate() *gate {
	g := newGate()
	x.Cleanup(g.open)
	return g
}

// hold keeps what g asks back at the server, if it is this, until the gate is open.
func (x *execution) hold(g *gate, what func(r zktest.Request) bool) {
	x.srv.SetHook(func(r *zktest.Request) zktest.Action {
		if r.Client == "g" && what(*r) {
			g.pass()
		}
		return zktest.Action{}
	})
}

// looks matches a look at the directory.
func looks(r zktest.Request) bool { return r.Op == zktest.OpGetChildren2 && r.Path == path }

// crowd is n Python processes, each of which leaves as soon as it has entered. The first has the lowest name of all, or
// else all have higher ones than ours.
func (x *execution) crowd(n int, lowest bool) []*python {
	x.Helper()
	list := make([]*python, n)
	for i := range list {
		c := "f"
		if i == 0 && lowest {
			c = "0"
		}
		list[i] = x.python(strings.Repeat(c, 31) + fmt.Sprint(i))
	}
	return list
}

// goThrough has a Python process enter and leave.
func (p *python) goThrough(clients int) {
	entered := make(chan struct{})
	p.begin("enter", func() error {
		defer close(entered)
		return p.enter(clients)
	})
	p.begin("leave", func() error {
		<-entered
		if p.ctx.Err() == nil {
			return p.leave()
		}
		return nil
	})
}

// stops has a Python process stop at the first request that is so called, and then do this.
func (p *python) stops(at string, do func()) {
	var once sync.Once
	before := p.before
	p.before = func(step string) {
		before(step)
		if step == at {
			once.Do(do)
		}
	}
}

// awaits has a Python process wait for something.
func (p *python) awaits(ok func() bool) {
	for !ok() && p.ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

// numbers runs an execution for two and for three.
func numbers(t *testing.T, f func(t *testing.T, n int)) {
	t.Helper()
	for n := 2; n <= 3; n++ {
		t.Run(fmt.Sprintf("of %d", n), func(t *testing.T) { f(t, n) })
	}
}

// recipe-attacks.md §2 (a) and (d): G waits; the others come, the last makes ready, and they leave at once. When G looks,
// because it was told or because it is connected again, all of that is gone. Of two G knows what that was. Of three it may
// have been two one after the other: it says so, and waits for nobody.
func TestReadyCameAndWent(t *testing.T) {
	for _, away := range []bool{false, true} {
		numbers(t, func(t *testing.T, n int) {
			attack.Run(t, hang, func(a *attack.Attack) {
				x := newExecution(a)
				d := x.double(x.session("g"), n, "")
				g := x.enter(d)
				x.until("our znode", x.stands(nameOf(d)))
				crowd := x.crowd(n-1, false)
				for _, p := range crowd[1:] {
					p.goThrough(n)
				}
				time.Sleep(time.Second)
				link, looked := x.nw.Client("g"), x.gate()
				if away {
					link.Refuse()
					link.Cut()
				} else {
					x.hold(looked, looks)
				}
				crowd[0].goThrough(n)
				x.over("enter", crowd...)
				x.until("their going", x.only(nameOf(d)))
				link.Heal()
				looked.open()
				want := error(nil)
				if n > 2 {
					want = session.ErrUncertain
				}
				if x.ends("enter", g, want) && g.m != nil {
					x.ends("leave", x.leave(g.m), nil)
				}
				x.over("leave", crowd...)
			}, sabotage.CameAndWent)
		})
	}
}

// Why who waits goes on by ready alone, although it could count: G sees the number, enters and leaves while the one
// that has completed it has not looked yet. That one sees too few then.
func TestTheNumberIsNoSignal(t *testing.T) {
	numbers(t, func(t *testing.T, n int) {
		attack.Run(t, hang, func(a *attack.Attack) {
			x := newExecution(a)
			d := x.double(x.session("g"), n, "")
			g := x.enter(d)
			x.until("our znode", x.stands(nameOf(d)))
			left := x.later(func(ctx context.Context) error {
				if <-g.done; g.m == nil {
					return nil
				}
				return g.m.Leave(ctx)
			})
			crowd := x.crowd(n-1, true)
			for _, p := range crowd[1:] {
				p.goThrough(n)
			}
			time.Sleep(time.Second)
			crowd[0].stops("enter: children", func() { time.Sleep(time.Second) })
			crowd[0].goThrough(n)
			x.over("enter", crowd...)
			x.over("leave", crowd...)
			if x.ends("enter", g, nil) {
				x.ends("leave", left, nil)
			}
		}, sabotage.WaitForReady)
	})
}

// recipe-attacks.md §2 (b), leaving ready to the last: G completes the number, but the others see it, too, and are leaving
// when G's ready is made. The one with the lowest name takes that for the highest member, and waits for it.
func TestReadyIsLeftToTheLast(t *testing.T) {
	numbers(t, func(t *testing.T, n int) {
		attack.Run(t, hang, func(a *attack.Attack) {
			x := newExecution(a)
			d := x.double(x.session("g"), n, "")
			if err := x.srv.Create(path, nil); err != nil {
				x.Fatal(err)
			}
			crowd := x.crowd(n-1, true)
			making := x.gate()
			waiting := make([]*gate, len(crowd))
			for i := range waiting {
				waiting[i] = x.gate()
			}
			leaving := make(chan struct{}, n)
			for _, p := range crowd {
				p.stops("leave: children", func() {
					if leaving <- struct{}{}; len(leaving) == len(crowd) {
						making.open()
					}
					p.awaits(x.stands("ready"))
				})
			}
			crowd[0].stops("enter: children", func() { crowd[0].awaits(x.stands(nameOf(d))) })
			crowd[0].stops("leave: wait", waiting[0].open)
			for i, p := range crowd[1:] {
				p.stops("leave: exists", waiting[i+1].open)
				p.goThrough(n)
			}
			time.Sleep(time.Second)
			crowd[0].goThrough(n)
			time.Sleep(time.Second)
			x.hold(making, func(r zktest.Request) bool { return r.Op == zktest.OpMulti && len(r.Ops) > 1 })
			g := x.enter(d)
			if !x.ends("enter", g, nil) || g.m == nil {
				return
			}
			for _, w := range waiting {
				w.pass()
			}
			left := x.leave(g.m)
			x.over("leave", crowd...)
			x.ends("leave", left, nil)
		}, sabotage.ReadyFirst)
	})
}

// recipe-attacks.md §2 (b), making it again: when G has looked the others have deleted ready, and are leaving. A new one is
// deleted by nobody, if G is killed.
func TestReadyIsMadeAgain(t *testing.T) {
	numbers(t, func(t *testing.T, n int) {
		attack.Run(t, hang, func(a *attack.Attack) {
			x := newExecution(a)
			s := x.session("g")
			id, d := x.id(s), x.double(s, n, "")
			g := x.enter(d)
			x.until("our znode", x.stands(nameOf(d)))
			crowd := x.crowd(n-1, true)
			looked := x.gate()
			leaving := make(chan struct{}, n)
			for _, p := range crowd {
				p.stops("leave: children", func() {
					if leaving <- struct{}{}; len(leaving) == len(crowd) {
						looked.open()
					}
					<-g.done
				})
			}
			for _, p := range crowd[1:] {
				p.goThrough(n)
			}
			time.Sleep(time.Second)
			x.hold(looked, looks)
			crowd[0].goThrough(n)
			if !x.ends("enter", g, nil) || g.m == nil {
				return
			}
			x.srv.KillSession(id)
			x.over("leave", crowd...)
		}, sabotage.ReadyOnce)
	})
}

// recipe-attacks.md §2 (c): a ready was left behind. If G removes it when a Python process has come, that one's only watch
// is used up: three enter, and it never wakes. (It takes four: kazoo counts ready as a member.)
func TestStaleReadyUsesUpTheOnlyWatch(t *testing.T) {
	attack.Run(t, hang, func(a *attack.Attack) {
		x := newExecution(a)
		x.make("ready")
		d := x.double(x.session("g"), 4, "")
		waits := x.gate()
		x.hold(waits, func(r zktest.Request) bool {
			return r.Op == zktest.OpDelete && r.Path == path+"/ready" && x.stands(nameOf(d))()
		})
		g := x.enter(d)
		x.until("our znode", x.stands(nameOf(d)))
		crowd := x.crowd(3, false)
		for _, p := range crowd {
			p.stops("leave: ready", func() { <-g.done })
		}
		crowd[0].stops("enter: wait", waits.open)
		crowd[0].goThrough(4)
		x.until("one that waits", func() bool {
			select {
			case <-waits.c:
				return !x.stands("ready")()
			default:
				return false
			}
		})
		for _, p := range crowd[1:] {
			p.goThrough(4)
		}
		x.over("enter", crowd...)
		if x.ends("enter", g, nil) && g.m != nil {
			x.ends("leave", x.leave(g.m), nil)
		}
	}, sabotage.ReadyAlone)
}

// Why each Enter has another GUID, though kazoo's objects have one: a Python process that leaves has seen our name in the
// list. When it looks for our znode we are in the next round already. It must not wait for that one.
func TestNameOfTheRoundBefore(t *testing.T) {
	attack.Run(t, hang, func(a *attack.Attack) {
		x := newExecution(a)
		d := x.double(x.session("g"), 2, "")
		g := x.enter(d)
		x.until("our znode", x.stands(nameOf(d)))
		p := x.crowd(1, false)[0]
		again := x.gate()
		p.stops("leave: exists", again.pass)
		p.goThrough(2)
		x.over("enter", p)
		if !x.ends("enter", g, nil) || !x.ends("leave", x.leave(g.m), nil) {
			return
		}
		g = x.enter(d)
		x.until("our next znode", x.stands(nameOf(d)))
		again.open()
		if x.over("leave", p); p.ctx.Err() != nil {
			return
		}
		p.goThrough(2)
		x.over("enter", p)
		if x.ends("enter", g, nil) && g.m != nil {
			x.ends("leave", x.leave(g.m), nil)
		}
		x.over("leave", p)
	}, sabotage.FreshGUID)
}

// recipe-attacks.md §13: somebody deletes the directory between two rounds.
func TestDirectoryDeleted(t *testing.T) {
	attack.Run(t, refused, func(a *attack.Attack) {
		x := newExecution(a)
		if err := x.srv.Create(path, nil); err != nil {
			x.Fatal(err)
		}
		d := x.double(x.session("g"), 1, "")
		for range 2 {
			m, err := d.Enter(a.Context())
			if errors.Is(err, session.ErrNoNode) {
				a.Harmed(refused, "%v", err)
				return
			}
			if err != nil {
				x.Fatal(err)
			}
			if err := m.Leave(a.Context()); err != nil {
				x.Error(err)
			}
			if err := x.srv.Delete(path); err != nil {
				x.Error(err)
			}
		}
	}, sabotage.EnsureAgain)
}

// recipe-attacks.md §14: the barrier is removed and set up again between the event and the look of who waits.
func TestSetUpAgainBeforeTheLook(t *testing.T) {
	attack.Run(t, hang, func(a *attack.Attack) {
		x := newExecution(a)
		if err := x.srv.Create(path, nil); err != nil {
			x.Fatal(err)
		}
		b := x.barrier(x.session("g"))
		c := x.later(b.Wait)
		time.Sleep(time.Second)
		link := x.nw.Client("g")
		link.BlackHole(zktest.ToClient)
		if err := errors.Join(x.srv.Delete(path), x.srv.Create(path, nil)); err != nil {
			x.Fatal(err)
		}
		link.Heal()
		x.ends("wait", c, nil)
	}, sabotage.SetUpAgain)
}
