package barrier_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/zktest"
)

// execution is a run of an execution: G is a Go process, the client "g" of the network; the others are Python.
type execution struct {
	*world
	wg sync.WaitGroup // of Python's calls
}

// inExecution runs an execution in a bubble.
func inExecution(t *testing.T, run func(x *execution)) {
	t.Helper()
	inWorld(t, func(w *world) {
		x := &execution{world: w}
		w.Cleanup(x.wg.Wait) // runs late: other cleanups end the calls
		run(x)
	})
}

// enter calls d.Enter in the background, until the test ends.
func (x *execution) enter(d *barrier.DoubleBarrier) *call {
	ctx, cancel := context.WithCancel(context.WithoutCancel(x.Context()))
	c := x.world.enter(ctx, d)
	x.Cleanup(func() {
		cancel()
		<-c.Done
		if c.Value != nil {
			_ = c.Value.Leave(ctx)
		}
	})
	return c
}

// later calls f in the background, with a context that ends with the test.
func (x *execution) later(f func(ctx context.Context) error) *call {
	ctx, cancel := context.WithCancel(context.WithoutCancel(x.Context()))
	c := x.world.later(func() error { return f(ctx) })
	x.Cleanup(func() {
		cancel()
		<-c.Done
	})
	return c
}

func (x *execution) leave(m *barrier.Member) *call { return x.later(m.Leave) }

// waits has G wait in the barrier for all n members.
func (x *execution) waits(n int) (d *barrier.DoubleBarrier, g *call) {
	x.Helper()
	d = x.double(x.Session("g"), n, "")
	g = x.enter(d)
	x.until("our znode", x.exists(nameOf(d)))
	return d, g
}

// leaveOnceIn has G leave as soon as it has entered.
func (x *execution) leaveOnceIn(g *call) *call {
	return x.later(func(ctx context.Context) error {
		if <-g.Done; g.Value == nil {
			return nil
		}
		return g.Value.Leave(ctx)
	})
}

// goesThrough waits until G has entered, with this error, and has it leave if it is inside.
func (x *execution) goesThrough(g *call, want error) {
	x.Helper()
	if x.ends("enter", g, want) && g.Value != nil {
		x.ends("leave", x.leave(g.Value), nil)
	}
}

// ends waits for a call of G's, and checks its error.
func (x *execution) ends(what string, c *call, want error) bool {
	x.Helper()
	select {
	case <-c.Done:
	case <-time.After(time.Minute):
		x.Errorf(hang+": %s goes on; znodes:\n%s", what, x.Srv.Dump())
		return false
	}
	if !errors.Is(c.Err, want) {
		x.Errorf("%s: got %v, want %v", what, c.Err, want)
	}
	return true
}

// over waits for Python's calls.
func (x *execution) over(what string, pythons ...*python) {
	x.Helper()
	for _, p := range pythons {
		if !p.over(x.world, what) {
			x.Errorf(hang+": %s: %s goes on; znodes:\n%s", p.node, what, x.Srv.Dump())
		}
	}
}

// until waits until ok returns true.
func (x *execution) until(what string, ok func() bool) {
	x.Helper()
	for range 60_000 {
		if ok() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	x.Fatalf("%s does not come; znodes:\n%s", what, x.Srv.Dump())
}

// only reports whether these children exist and no others.
func (x *execution) only(names ...string) func() bool {
	return func() bool { return strings.Join(x.Srv.Children(path), " ") == strings.Join(names, " ") }
}

func (x *execution) exists(name string) func() bool {
	return func() bool { _, _, ok := x.Srv.Get(path + "/" + name); return ok }
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

// hold keeps g's requests that match back at the server, until the gate is open.
func (x *execution) hold(g *gate, what func(r zktest.Request) bool) {
	x.Srv.SetHook(func(r *zktest.Request) zktest.Action {
		if r.Client == "g" && what(*r) {
			g.pass()
		}
		return zktest.Action{}
	})
}

// looks matches a read of the directory.
func looks(r zktest.Request) bool { return r.Op == zktest.OpGetChildren2 && r.Path == path }

// crowd returns n Python processes, each of which leaves as soon as it has entered. With lowest the first one has the lowest name
// of all. The others' names are higher than that of Go's member.
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

// goThrough makes the Python process enter and leave.
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

// stops makes the Python process call do before its first request of that name.
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

// awaits makes the Python process wait until ok returns true, for a minute at most.
func (p *python) awaits(ok func() bool) {
	for range 60_000 {
		if ok() || p.ctx.Err() != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// numbers runs an execution for two members and for three.
func numbers(t *testing.T, run func(x *execution, n int)) {
	t.Helper()
	for n := 2; n <= 3; n++ {
		t.Run(fmt.Sprintf("of %d", n), func(t *testing.T) { inExecution(t, func(x *execution) { run(x, n) }) })
	}
}
