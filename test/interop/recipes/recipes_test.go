package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/recipe/counter"
	"github.com/kielgo/kiel/recipe/election"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/test/wait"
)

// Both languages write the same number with the same bytes, and read each other's.
func TestCounterBytes(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	huge := "123456789012345678901234567890"
	for i, n := range []string{"0", "1", "-1", "9223372036854775807", huge, "-" + huge} {
		ours, theirs := fmt.Sprintf("/big/go%d", i), fmt.Sprintf("/big/py%d", i)
		c, err := counter.NewBig(r.s, ours, counter.Options[*big.Int]{})
		r.must(err)
		value, _ := new(big.Int).SetString(n, 10)
		_, err = c.Add(ctx, value)
		r.must(err)
		name := "big" + n
		r.py.do(request{Object: name, Make: "Counter", Args: []any{theirs}})
		r.py.do(request{Object: name, Call: "__add__", Args: []any{value}})
		r.same(ours, theirs)
		r.py.do(request{Object: "theirs", Make: "Counter", Args: []any{ours}})
		r.want(r.py.do(request{Object: "theirs", Get: "value"}), n)
	}
	for i, n := range []float64{0.5, -0.1, 1e15, 1e16, 1e22, 123456.75, 1e-4, 1e-5, 5e-324, math.MaxFloat64} {
		ours, theirs := fmt.Sprintf("/float/go%d", i), fmt.Sprintf("/float/py%d", i)
		c, err := counter.NewFloat(r.s, ours, counter.Options[float64]{})
		r.must(err)
		_, err = c.Add(ctx, n)
		r.must(err)
		r.py.do(request{Object: "f", Make: "Counter", Args: []any{theirs}, Kwargs: map[string]any{"default": pythonFloat(0)}})
		r.py.do(request{Object: "f", Call: "__add__", Args: []any{pythonFloat(n)}})
		r.same(ours, theirs)
	}
	for i, n := range []int32{0, 1, -2, math.MaxInt32, math.MinInt32} {
		ours, theirs := fmt.Sprintf("/curator/go%d", i), fmt.Sprintf("/curator/py%d", i)
		c, err := counter.NewCurator(r.s, ours, counter.Options[int32]{})
		r.must(err)
		_, err = c.Add(ctx, n)
		r.must(err)
		r.py.do(request{Object: "n", Make: "Counter", Args: []any{theirs}, Kwargs: map[string]any{"support_curator": true}})
		r.py.do(request{Object: "n", Call: "__add__", Args: []any{n}})
		r.same(ours, theirs)
	}
}

// pythonFloat is written in such a way that Python reads a float.
type pythonFloat float64

// MarshalJSON writes a number with an exponent.
func (f pythonFloat) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, "%.17e", float64(f)), nil }

// Both add to one counter, and nothing is counted twice or not at all.
func TestCounterTogether(t *testing.T) {
	r := newRig(t)
	const path, each = "/together", 50
	c, err := counter.New(r.s, path, counter.Options[int64]{})
	r.must(err)
	r.py.do(request{Object: "c", Make: "Counter", Args: []any{path}})
	done := make(chan error, 1)
	go func() {
		for range each {
			if _, err := c.Add(t.Context(), 1); err != nil {
				done <- err
				return
			}
			wait.Pass(t, 20*time.Millisecond) // Python's retries starve beside a faster one
		}
		done <- nil
	}()
	for range each {
		r.py.do(request{Object: "c", Call: "__add__", Args: []any{1}})
	}
	r.must(<-done)
	got, err := c.Get(t.Context())
	r.must(err)
	r.want(fmt.Sprint(got), fmt.Sprint(2*each))
	r.want(r.py.do(request{Object: "c", Get: "value"}), fmt.Sprint(2*each))
}

// A barrier of one language holds up the other.
func TestBarrier(t *testing.T) {
	r := newRig(t)
	const ours, theirs = "/barriers/go", "/barriers/py"
	b, err := barrier.New(r.s, ours, barrier.Options{})
	r.must(err)
	r.must(b.Create(t.Context()))
	r.py.do(request{Object: "ours", Make: "Barrier", Args: []any{ours}})
	r.py.do(request{Object: "theirs", Make: "Barrier", Args: []any{theirs}})
	r.py.do(request{Object: "theirs", Call: "create"})
	r.same(ours, theirs)

	waits := r.py.later(request{Object: "ours", Call: "wait", Args: []any{30}})
	r.must(r.pass(func(ctx context.Context) error { return b.Wait(ctx) }))
	removed, err := b.Remove(t.Context())
	r.must(err)
	r.want(fmt.Sprint(removed), "true")
	got, err := waits()
	r.must(err)
	r.want(got, "true")

	b, err = barrier.New(r.s, theirs, barrier.Options{})
	r.must(err)
	done := make(chan error, 1)
	go func() { done <- b.Wait(t.Context()) }()
	r.must(r.pass(func(ctx context.Context) error { return b.Wait(ctx) }))
	r.want(r.py.do(request{Object: "theirs", Call: "remove"}), "true")
	r.must(<-done)
}

// pass checks that something goes on for half a second.
func (r *rig) pass(f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(r.Context(), 500*time.Millisecond)
	defer cancel()
	if err := f(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("did not wait: %w", err)
	}
	return nil
}

// Members of both languages cross a double barrier together, in and out, again and again.
func TestDoubleBarrier(t *testing.T) {
	r := newRig(t)
	const path, rounds = "/double", 5
	r.py.do(request{Object: "d", Make: "DoubleBarrier", Args: []any{path, 2}, Kwargs: map[string]any{"identifier": "python"}})
	for round := range rounds {
		d, err := barrier.NewDouble(r.s, path, 2, barrier.DoubleOptions{Identifier: "go"})
		r.must(err)
		entered := r.py.later(request{Object: "d", Call: "enter"})
		m, err := d.Enter(t.Context())
		r.must(err)
		_, err = entered()
		r.must(err)
		if round == 0 {
			r.want(r.tree(path), " p \"\"\n/<guid> e \"go\"\n/<guid> e \"python\"\n/ready p \"\"")
		}
		left := r.py.later(request{Object: "d", Call: "leave"})
		r.must(m.Leave(t.Context()))
		_, err = left()
		r.must(err)
		r.want(r.tree(path), ` p ""`)
	}
}

// Each language lists the other's members, of both kinds of parties.
func TestParties(t *testing.T) {
	r := newRig(t)
	type member interface {
		Join(ctx context.Context) error
		Leave(ctx context.Context) error
		Members(ctx context.Context) ([]string, error)
		WaitForMembers(ctx context.Context, n int) ([]string, error)
	}
	for class, join := range map[string]func(path string) (member, error){
		"Party": func(path string) (member, error) {
			return party.NewKazooParty(r.s, path, party.KazooOptions{Identifier: "gö-1"})
		},
		"ShallowParty": func(path string) (member, error) {
			return party.NewShallowParty(r.s, path, party.KazooOptions{Identifier: "gö-1"})
		},
	} {
		t.Run(class, func(t *testing.T) {
			path := "/parties/" + class
			m, err := join(path)
			r.must(err)
			r.must(m.Join(t.Context()))
			alone := r.tree(path)
			r.py.do(request{Object: class, Make: class, Args: []any{path}, Kwargs: map[string]any{"identifier": "py-1"}})
			r.py.do(request{Object: class, Call: "join"})
			all, err := m.WaitForMembers(t.Context(), 2)
			r.must(err)
			slices.Sort(all)
			r.want(fmt.Sprint(all), "[gö-1 py-1]")
			for _, name := range all {
				if list := r.py.do(request{Object: class, List: true}); !strings.Contains(list, name) {
					t.Errorf("Python lists %s, without %s", list, name)
				}
			}
			r.must(m.Leave(t.Context()))
			if theirs := r.tree(path); theirs != strings.ReplaceAll(alone, "gö-1", "py-1") {
				t.Errorf("Go wrote\n%s\nPython wrote\n%s", alone, theirs)
			}
			r.want(r.py.do(request{Object: class, List: true}), "[py-1]")
			r.py.do(request{Object: class, Call: "leave"})
			all, err = m.Members(t.Context())
			r.must(err)
			r.want(fmt.Sprint(all), "[]")
		})
	}
}

// Readers of both languages read together, and a writer of either waits for them and keeps them out.
func TestReadersAndWriters(t *testing.T) {
	r := newRig(t)
	const path = "/rw"
	ctx := t.Context()
	read, err := lock.NewRead(r.s, path, lock.Options{Identifier: "go reads"})
	r.must(err)
	write, err := lock.NewWrite(r.s, path, lock.Options{Identifier: "go writes"})
	r.must(err)
	r.py.do(request{Object: "read", Make: "ReadLock", Args: []any{path, "python reads"}})
	r.py.do(request{Object: "write", Make: "WriteLock", Args: []any{path, "python writes"}})

	held, err := read.Acquire(ctx)
	r.must(err)
	r.want(r.py.do(request{Object: "read", Call: "acquire"}), "true")
	r.want(r.tree(path), " p \"\"\n/<guid>__rlock__<sequence> e \"go reads\"\n/<guid>__rlock__<sequence> e \"python reads\"")
	if _, err := write.TryAcquire(ctx); !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("a writer beside readers: %v", err)
	}
	r.want(r.py.do(request{Object: "write", Call: "acquire", Args: []any{false}}), "false")

	done := make(chan error, 1)
	var writing *lock.Held
	go func() {
		var err error
		writing, err = write.Acquire(ctx)
		done <- err
	}()
	wait.Until(t, 20*time.Second, func() bool { return strings.Contains(r.tree(path), "go writes") }, func() string { return "a writer waits" })
	// A reader that comes after a writer waits behind it.
	if _, err := read.TryAcquire(ctx); !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("a reader passed a writer: %v", err)
	}
	r.must(held.Release(ctx))
	r.py.do(request{Object: "read", Call: "release"})
	r.must(<-done)
	r.want(r.py.do(request{Object: "read", Call: "acquire", Args: []any{false}}), "false")
	acquired := r.py.later(request{Object: "write", Call: "acquire"})
	wait.Until(t, 20*time.Second, func() bool { return strings.Contains(r.tree(path), "python writes") }, func() string { return "Python waits" })
	if !writing.Valid() {
		t.Error("the writer lost its lock")
	}
	r.must(writing.Release(ctx))
	got, err := acquired()
	r.must(err)
	r.want(got, "true")
	if _, err := read.TryAcquire(ctx); !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("a reader beside Python's writer: %v", err)
	}
	r.py.do(request{Object: "write", Call: "release"})
	held, err = read.TryAcquire(ctx)
	r.must(err)
	r.must(held.Release(ctx))
	r.want(r.tree(path), ` p ""`)
}

// Candidates of both languages stand in one line, and lead one after the other.
func TestElection(t *testing.T) {
	r := newRig(t)
	const path = "/election"
	e, err := election.New(r.s, path, election.Options{Identifier: "go"})
	r.must(err)
	r.py.do(request{Object: "lock", Make: "Lock", Args: []any{path, "python leads"}}) // what its Election stands on
	r.py.do(request{Object: "election", Make: "Election", Args: []any{path, "python"}})
	r.want(r.py.do(request{Object: "lock", Call: "acquire"}), "true")
	led, end, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- e.Run(t.Context(), func(context.Context) error {
			close(led)
			<-end
			return nil
		})
	}()
	wait.Until(t, 20*time.Second, func() bool {
		return r.py.do(request{Object: "election", Call: "contenders"}) == "[python leads go]"
	}, func() string { return "Go waits behind Python" })
	select {
	case <-led:
		t.Error("two lead")
	default:
	}
	r.py.do(request{Object: "lock", Call: "release"})
	<-led
	r.want(r.py.do(request{Object: "election", Call: "contenders"}), "[go]")
	r.want(r.py.do(request{Object: "lock", Call: "acquire", Args: []any{false}}), "false")
	close(end)
	r.must(<-done)
	r.want(r.py.do(request{Object: "lock", Call: "acquire", Args: []any{false}}), "true")
}
