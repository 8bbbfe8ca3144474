package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/recipe/semaphore"
	"github.com/kielgo/kiel/test/wait"
)

// Leases of a semaphore are shared by both languages, and look alike.
func TestSemaphore(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	const ours, theirs = "/semaphores/go", "/semaphores/py"
	first, err := semaphore.New(r.s, ours, semaphore.Options{MaxLeases: 2, Identifier: "holder"})
	r.must(err)
	held, err := first.Acquire(ctx)
	r.must(err)
	r.py.do(request{Object: "theirs", Make: "Semaphore", Args: []any{theirs, "holder", 2}})
	r.want(r.py.do(request{Object: "theirs", Call: "acquire"}), "true")
	r.same(ours, theirs)

	r.py.do(request{Object: "ours", Make: "Semaphore", Args: []any{ours, "python", 2}})
	r.want(r.py.do(request{Object: "ours", Call: "acquire"}), "true")
	second, err := semaphore.New(r.session(), ours, semaphore.Options{MaxLeases: 2, Identifier: "second"})
	r.must(err)
	if _, err := second.TryAcquire(ctx); !errors.Is(err, semaphore.ErrNotAcquired) {
		t.Errorf("a third lease of two: %v", err)
	}
	list := r.py.do(request{Object: "ours", Call: "lease_holders"})
	if !strings.Contains(list, "holder") || !strings.Contains(list, "python") {
		t.Errorf("Python lists %s", list)
	}
	r.must(held.Release(ctx))
	held, err = second.Acquire(ctx)
	r.must(err)
	r.want(r.py.do(request{Object: "third", Make: "Semaphore", Args: []any{ours, "third", 2}}), "<nil>")
	r.want(r.py.do(request{Object: "third", Call: "acquire", Args: []any{false}}), "false")
	r.py.do(request{Object: "ours", Call: "release"})
	r.want(r.py.do(request{Object: "third", Call: "acquire"}), "true")
	r.must(held.Release(ctx))
	r.py.do(request{Object: "third", Call: "release"})

	for i, identifier := range []string{"", "gö\n\x7f", `it's`, `it's "it"`, `a\b`} {
		ours, theirs := fmt.Sprintf("/named/go%d", i), fmt.Sprintf("/named/py%d", i)
		s, err := semaphore.New(r.s, ours, semaphore.Options{Identifier: identifier})
		r.must(err)
		held, err := s.Acquire(ctx)
		r.must(err)
		blocked, err := r.contend(ours, identifier)
		r.must(err)
		r.py.do(request{Object: "named", Make: "Semaphore", Args: []any{theirs, identifier}})
		r.want(r.py.do(request{Object: "named", Call: "acquire"}), "true")
		other := r.python("waits")
		other.do(request{Object: "named", Make: "Semaphore", Args: []any{theirs, identifier}})
		if err := other.In.Encode(request{Object: "named", Call: "acquire"}); err != nil {
			t.Fatal(err)
		}
		const inner = "-__lock__"
		wait.Until(t, 20*time.Second, func() bool {
			return r.tree(theirs+inner) == r.tree(ours+inner) && strings.Contains(r.tree(ours+inner), "/")
		}, func() string {
			return fmt.Sprintf("both wait with the same inner contender:\n%s\n%s", r.tree(ours+inner), r.tree(theirs+inner))
		})
		other.Kill()
		blocked()
		r.must(held.Release(ctx))
	}

	wrong, err := semaphore.New(r.s, ours, semaphore.Options{MaxLeases: 3})
	r.must(err)
	if _, err := wrong.TryAcquire(ctx); err == nil {
		t.Error("three leases of a semaphore that has two")
	}
}

// contend waits for a lease until the returned function is called.
func (r *rig) contend(path, identifier string) (stop func(), err error) {
	s, err := semaphore.New(r.session(), path, semaphore.Options{Identifier: identifier})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(r.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := s.Acquire(ctx); !errors.Is(err, context.Canceled) {
			r.Errorf("a second lease of one: %v", err)
		}
	}()
	return func() {
		cancel()
		<-done
	}, nil
}

// What one language has put in a queue the other takes out, by priority and in order.
func TestQueue(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	const ours, theirs = "/queues/go", "/queues/py"
	q, err := queue.New(r.s, ours, queue.Options{})
	r.must(err)
	fill := []struct {
		value    string
		priority int
	}{{"b", 100}, {"c", 100}, {"a", 7}, {"d", 999}, {"ä", 100}}
	r.py.do(request{Object: "theirs", Make: "Queue", Args: []any{theirs}})
	for _, f := range fill {
		_, err := q.Put(ctx, []byte(f.value), f.priority)
		r.must(err)
		r.py.do(request{Object: "theirs", Call: "put", Bytes: f.value, Args: []any{f.priority}})
	}
	r.same(ours, theirs)
	r.py.do(request{Object: "ours", Make: "Queue", Args: []any{ours}})
	back, err := queue.New(r.s, theirs, queue.Options{})
	r.must(err)
	for _, want := range []string{"a", "b", "c", "ä", "d"} {
		r.want(r.py.do(request{Object: "ours", Call: "get"}), want)
		got, err := back.TryGet(ctx)
		r.must(err)
		r.want(string(got), want)
	}
	r.want(r.py.do(request{Object: "ours", Call: "get"}), "<nil>")
	if _, err := back.TryGet(ctx); !errors.Is(err, queue.ErrEmpty) {
		t.Errorf("an empty queue: %v", err)
	}
}

// An entry that one language holds is not the other's, until it is released.
func TestLockingQueue(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	const ours, theirs = "/lockingqueues/go", "/lockingqueues/py"
	q, err := queue.NewLocking(r.s, ours, queue.Options{})
	r.must(err)
	r.py.do(request{Object: "theirs", Make: "LockingQueue", Args: []any{theirs}})
	for _, v := range []string{"one", "two"} {
		_, err := q.Put(ctx, []byte(v), queue.DefaultPriority)
		r.must(err)
		r.py.do(request{Object: "theirs", Call: "put", Bytes: v})
	}
	held, err := q.Get(ctx)
	r.must(err)
	r.want(string(held.Value()), "one")
	r.want(r.py.do(request{Object: "theirs", Call: "get", Args: []any{5}}), "one")
	r.same(ours, theirs)

	r.py.do(request{Object: "ours", Make: "LockingQueue", Args: []any{ours}})
	r.want(r.py.do(request{Object: "ours", Call: "get", Args: []any{5}}), "two")
	if _, err := q.TryGet(ctx); !errors.Is(err, queue.ErrEmpty) {
		t.Errorf("an entry that Python holds: %v", err)
	}
	r.want(r.py.do(request{Object: "ours", Call: "release"}), "true")
	again, err := q.Get(ctx)
	r.must(err)
	r.want(string(again.Value()), "two")
	r.must(again.Consume(ctx))
	r.must(held.Release(ctx))
	r.want(r.py.do(request{Object: "ours", Call: "get", Args: []any{5}}), "one")
	r.want(r.py.do(request{Object: "ours", Call: "consume"}), "true")
	n, err := q.Len(ctx)
	r.must(err)
	r.want(fmt.Sprint(n), "0")
}

// A lease that one language has is refused to the other, and is written alike.
func TestLease(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	const ours, theirs = "/leases/go", "/leases/py"
	l, err := lease.New(r.s, ours, lease.Options{Identifier: "gö \U0001F600\u007f<&>", Duration: time.Minute})
	r.must(err)
	held, err := l.Obtain(ctx)
	r.must(err)
	r.py.do(request{
		Object: "theirs", Make: "NonBlockingLease", Args: []any{theirs}, Seconds: 60,
		Kwargs: map[string]any{"identifier": "gö \U0001F600\u007f<&>"},
	})
	r.want(r.py.do(request{Object: "theirs", Truth: true}), "true")
	ends := func(tree string) string { return timestamp.ReplaceAllString(tree, "<end>") }
	if a, b := ends(r.tree(ours)), ends(r.tree(theirs)); a != b {
		t.Errorf("Go wrote\n%s\nPython wrote\n%s", a, b)
	}
	obtain := func(path, identifier string) string {
		r.py.do(request{
			Object: "lease", Make: "NonBlockingLease", Args: []any{path}, Seconds: 60,
			Kwargs: map[string]any{"identifier": identifier},
		})
		return r.py.do(request{Object: "lease", Truth: true})
	}
	r.want(obtain(ours, "python"), "false")
	r.must(held.Release(ctx))
	r.want(obtain(ours, "python"), "true")
	if _, err := l.Obtain(ctx); !errors.Is(err, lease.ErrNotObtained) {
		t.Errorf("a lease that Python has: %v", err)
	}
	record, taken, err := l.Holder(ctx)
	r.must(err)
	if !taken || record.Holder != "python" {
		t.Errorf("holder %+v", record)
	}

	many, err := lease.NewMulti(r.s, "/many", 2, lease.Options{Identifier: "go", Duration: time.Minute})
	r.must(err)
	r.py.do(request{
		Object: "many", Make: "MultiNonBlockingLease", Args: []any{2, "/many"}, Seconds: 60,
		Kwargs: map[string]any{"identifier": "python"},
	})
	r.want(r.py.do(request{Object: "many", Truth: true}), "true")
	other, err := many.ObtainAny(ctx)
	r.must(err)
	defer func() { r.must(other.Release(ctx)) }()
	r.py.do(request{
		Object: "more", Make: "MultiNonBlockingLease", Args: []any{2, "/many"}, Seconds: 60,
		Kwargs: map[string]any{"identifier": "another"},
	})
	r.want(r.py.do(request{Object: "more", Truth: true}), "false")
}

// Two members of each language divide eleven items, through a kill and a new member: after a while each item has one owner.
func TestSetPartitioner(t *testing.T) {
	r := newRig(t)
	const path, boundary = "/partitioner", time.Second
	var items []string
	for i := range 11 {
		items = append(items, fmt.Sprintf("item-%02d", i))
	}
	owners := map[string]func() []string{} // what a member has, nil when it has not acquired
	goes := func(name string) (finish func()) {
		p, err := partitioner.New(r.session(), path, items, partitioner.Options{Identifier: name, TimeBoundary: boundary, Order: partitioner.OrderText})
		r.must(err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- p.Run(ctx, func(ctx context.Context, _ []string) error {
				<-ctx.Done()
				return nil
			})
		}()
		owners[name] = func() []string {
			if a := p.Allocation(); p.Acquired() && a != nil {
				return p.Items()
			}
			return nil
		}
		return func() {
			cancel()
			if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
			delete(owners, name)
		}
	}
	pythons := map[string]*python{}
	snake := func(name string) {
		p := r.python(name)
		pythons[name] = p
		p.do(request{
			Object: "p", Make: "SetPartitioner", Args: []any{path, items},
			Kwargs: map[string]any{"identifier": name, "time_boundary": boundary.Seconds(), "max_reaction_time": 0.5},
		})
		owners[name] = func() []string {
			switch p.do(request{Object: "p", Get: "state"}) {
			case "RELEASE":
				p.do(request{Object: "p", Call: "release_set"})
			case "ACQUIRED":
				return strings.Fields(strings.Trim(p.do(request{Object: "p", List: true}), "[]"))
			}
			return nil
		}
	}
	settled := func(what string, members int) {
		t.Helper()
		began := time.Now()
		shares := map[string][]string{}
		wait.Until(t, time.Minute, func() bool {
			var all []string
			for name, owns := range owners {
				shares[name] = owns()
				if len(shares[name]) < len(items)/members {
					return false
				}
				all = append(all, shares[name]...)
			}
			slices.Sort(all)
			return slices.Equal(all, items)
		}, func() string { return fmt.Sprintf("%s: each item has one owner: %v", what, shares) })
		t.Attr(strings.ReplaceAll(what, " ", "-"), time.Since(began).Round(time.Millisecond).String())
	}
	finishA := goes("go-a")
	finishB := goes("go-b")
	snake("py-a")
	snake("py-b")
	settled("all four have joined", 4)
	pythons["py-a"].Kill()
	delete(owners, "py-a")
	settled("one Python was killed", 3)
	finishA()
	settled("one Go has left", 2)
	finishC := goes("go-c")
	settled("another has joined", 3)
	pythons["py-b"].do(request{Object: "p", Call: "finish"})
	delete(owners, "py-b")
	settled("the last Python has finished", 2)
	finishB()
	finishC()
}
