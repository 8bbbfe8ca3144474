package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/recipe/counter"
	"github.com/kielgo/kiel/test/wait"
)

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
