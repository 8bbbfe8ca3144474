package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/recipe/election"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/wait"
)

// Contenders of both languages that wait for one thing get it in the order in which they came, and stand in that order in either
// language's list.
func TestFirstComeFirstServed(t *testing.T) {
	a := newArena(t)
	observer := a.python("observer")
	for i, thing := range []struct {
		kind int
		ask  string // and this is what they ask for
		dir  string // where those who wait stand, after the path
	}{
		{ofLock, "Lock", ""},
		{ofReadersAndWriters, "WriteLock", ""},
		{ofElection, "Election", ""},
		{ofSemaphore, "Semaphore", "-__lock__"},
	} {
		s := a.schedule(&plan{kind: thing.kind}, fmt.Sprintf("/order/%d", i))
		s.timeout = 15 * time.Second // no place is lost
		ctx := t.Context()
		var held []*hold
		standing := 1
		if thing.kind == ofSemaphore { // all leases are taken, so that the inner lock is the queue
			standing = 0
		}
		for range leases {
			take, err := taker(a.s, thing.kind, s.path, "first")
			a.must(err)
			h, err := take(ctx, op{Make: thing.ask, Mode: "wait"})
			a.must(err)
			held = append(held, h)
			if thing.kind != ofSemaphore {
				break
			}
		}
		var want []string
		var wg sync.WaitGroup
		for n, name := range []string{"py0", "go1", "pÿ2", "gö3", "py4", "go5"} {
			ops := []op{{N: 1, Make: thing.ask, Mode: "wait", Parts: 1, Pause: 0.01}}
			m := &member{Name: name, python: n%2 == 0, ops: ops}
			want = append(want, m.Name)
			wg.Go(func() {
				if m.python {
					s.python(m)
				} else {
					s.golang(m)
				}
			})
			wait.Until(t, silence, func() bool {
				inc, err := a.s.Incarnation(ctx)
				a.must(err)
				children, _, err := inc.Children(ctx, s.path+thing.dir)
				return err == nil && len(children) == standing+n+1 || len(s.problems()) > 0
			}, func() string { return fmt.Sprintf("%s stands in line for the %s", m.Name, thing.ask) })
			if thing.kind != ofSemaphore { // nobody lists who waits for one
				a.listed(observer, thing.ask, s.path, append([]string{"first"}, want...))
			}
		}
		a.must(held[0].release(ctx)) // of a semaphore one lease is free now
		wg.Wait()
		for _, h := range held[1:] {
			a.must(h.release(ctx))
		}
		var order []string
		slices.SortFunc(s.claims.all, func(a, b *claim) int { return int(a.began - b.began) })
		for _, c := range s.claims.all {
			order = append(order, c.who)
		}
		if !slices.Equal(order, want) {
			t.Errorf("%s: served in the order %v", thing.ask, order)
		}
		if wrong := append(s.problems(), s.claims.judge(1)...); len(wrong) > 0 {
			t.Errorf("%s: %q\n%s", thing.ask, wrong, strings.Join(s.story, "\n"))
		}
	}
}

// listed checks that both languages list these contenders, in this order.
func (a *arena) listed(observer *python, ask, path string, want []string) {
	a.Helper()
	observer.do(request{Object: path, Make: ask, Args: []any{path, "observer"}})
	a.want(observer.do(request{Object: path, Call: "contenders"}), fmt.Sprint(want))
	contenders, err := lister(a.s, ask, path)
	a.must(err)
	list, err := contenders(a.Context())
	a.must(err)
	var ours []string
	for _, c := range list {
		ours = append(ours, c.Identifier)
	}
	if !slices.Equal(ours, want) {
		a.Errorf("%s: Go lists %q, want %q", ask, ours, want)
	}
}

// lister returns what lists the contenders for what is asked.
func lister(s *session.Session, ask, path string) (func(context.Context) ([]lock.Contender, error), error) {
	switch ask {
	case "Election":
		e, err := election.New(s, path, election.Options{})
		return e.Contenders, err
	case "WriteLock":
		l, err := lock.NewWrite(s, path, lock.Options{})
		return l.Contenders, err
	default:
		l, err := lock.New(s, path, lock.Options{})
		return l.Contenders, err
	}
}

// What both put into a queue both take out together, each value once.
func TestQueuesDrainedTogether(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	const each = 20
	plain, err := queue.New(r.s, "/drained/plain", queue.Options{})
	r.must(err)
	locking, err := queue.NewLocking(r.s, "/drained/locking", queue.Options{})
	r.must(err)
	for class, q := range map[string]struct {
		path string
		put  func(ctx context.Context, value []byte, priority int) (string, error)
		get  func() (string, error)
		len  func(ctx context.Context) (int, error)
	}{
		"Queue": {"/drained/plain", plain.Put, func() (string, error) {
			value, err := plain.TryGet(ctx)
			return string(value), err
		}, plain.Len},
		"LockingQueue": {"/drained/locking", locking.Put, func() (string, error) {
			h, err := locking.TryGet(ctx)
			if err != nil {
				return "", err
			}
			return string(h.Value()), h.Consume(ctx)
		}, locking.Len},
	} {
		r.py.do(request{Object: class, Make: class, Args: []any{q.path}})
		want := make(map[string]int)
		for i := range each {
			for _, who := range []string{"go", "python"} {
				want[fmt.Sprintf("%s %d", who, i)] = 1
			}
			_, err := q.put(ctx, fmt.Appendf(nil, "go %d", i), queue.DefaultPriority)
			r.must(err)
			r.py.do(request{Object: class, Call: "put", Bytes: fmt.Sprintf("python %d", i)})
		}
		type taken struct {
			values []string
			err    error
		}
		byGo, first := make(chan taken, 1), make(chan struct{})
		begun := sync.OnceFunc(func() { close(first) })
		begin := func() {
			var all taken
			defer func() {
				begun()
				byGo <- all
			}()
			for {
				value, err := q.get()
				if err == nil {
					all.values = append(all.values, value)
					begun()
				} else if all.err = err; !errors.Is(err, queue.ErrEmpty) {
					return
				}
				n, err := q.len(ctx)
				if all.err = err; err != nil || n == 0 {
					return
				}
				wait.Pass(t, 20*time.Millisecond) // Python's retries starve beside a faster one
			}
		}
		got := make(map[string]int)
		for {
			var args []any
			if class == "LockingQueue" {
				args = []any{0.2}
			}
			value := r.py.do(request{Object: class, Call: "get", Args: args})
			if value == "<nil>" {
				break
			}
			if class == "LockingQueue" {
				r.want(r.py.do(request{Object: class, Call: "consume"}), "true")
			}
			got[value]++
			if len(got) == 1 { // both take part
				go begin()
				<-first
			}
		}
		all := <-byGo
		r.must(all.err)
		for _, value := range all.values {
			got[value]++
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: taken %v", class, got)
		}
	}
}

// What Python has put into a LockingQueue Go drains.
func TestLockingQueueOfPython(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r.py.do(request{Object: "q", Make: "LockingQueue", Args: []any{"/filled"}})
	r.py.do(request{Object: "q", Call: "put_all", ListOfBytes: []string{"c", "ä"}})
	r.py.do(request{Object: "q", Call: "put", Bytes: "a", Args: []any{7}})
	q, err := queue.NewLocking(r.s, "/filled", queue.Options{})
	r.must(err)
	_, err = q.PutAll(ctx, [][]byte{[]byte("b")}, 50)
	r.must(err)
	var got []string
	for h, err := range q.All(ctx) {
		r.must(err)
		if got = append(got, string(h.Value())); len(got) == 4 {
			r.must(h.Consume(ctx))
			break
		}
	}
	r.want(fmt.Sprint(got), "[a b c ä]")
	r.want(r.py.do(request{Object: "q", Call: "get", Args: []any{0}}), "<nil>")
}

// Two members of each language go into a double barrier together, and out together, again and again.
func TestDoubleBarrierOfFour(t *testing.T) {
	r := newRig(t)
	const path = "/four"
	pythons := []*python{r.py, r.python("another")}
	for i, p := range pythons {
		identifier := map[string]any{"identifier": fmt.Sprintf("python %d", i)}
		p.do(request{Object: "d", Make: "DoubleBarrier", Args: []any{path, 4}, Kwargs: identifier})
	}
	type member struct{ enter, leave func() error }
	var members []member
	for i := range 2 {
		d, err := barrier.NewDouble(r.session(), path, 4, barrier.DoubleOptions{Identifier: fmt.Sprintf("go %d", i)})
		r.must(err)
		var m *barrier.Member
		members = append(members, member{func() (err error) {
			m, err = d.Enter(t.Context())
			return err
		}, func() error { return m.Leave(t.Context()) }})
		call := func(name string) func() error {
			return func() error {
				_, err := pythons[i].later(request{Object: "d", Call: name})()
				return err
			}
		}
		members = append(members, member{call("enter"), call("leave")})
	}
	together := func(what string, do func(m member) error, seen func(came int) bool) {
		t.Helper()
		through := make(chan error, len(members))
		for i, m := range members {
			if n := len(through); n > 0 {
				t.Errorf("%s: %d are through when only %d have come", what, n, i)
			}
			go func() { through <- do(m) }()
			if i == len(members)-1 {
				break
			}
			wait.Until(t, 20*time.Second, func() bool { return seen(i + 1) }, func() string {
				return fmt.Sprintf("%s: %d have come:\n%s", what, i+1, r.tree(path))
			})
			wait.Pass(t, 100*time.Millisecond) // in which one could go through too early
		}
		for range members {
			r.must(<-through)
		}
	}
	for range 3 {
		together("in", func(m member) error { return m.enter() }, func(came int) bool { return r.count(path) == came })
		r.want(fmt.Sprint(r.count(path)), "5") // with ready
		// The first by name stands until the others have left.
		together("out", func(m member) error { return m.leave() }, func(left int) bool { return r.count(path) <= 5-left })
		r.want(fmt.Sprint(r.count(path)), "0")
	}
}

// count returns how many children a znode has.
func (r *rig) count(path string) int {
	r.Helper()
	inc, err := r.s.Incarnation(r.Context())
	r.must(err)
	children, _, err := inc.Children(r.Context(), path)
	if errors.Is(err, session.ErrNoNode) {
		return 0
	}
	r.must(err)
	return len(children)
}
