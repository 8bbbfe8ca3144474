package stack_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/allocfn"
)

// broken makes a member whose allocation function panics while it is ill.
func (w *world) broken(name string, n int) *patient {
	w.t.Helper()
	p := &patient{}
	p.member = w.make(name, setup{allocator: allocator.Options{Seed: seed(n), Func: p.function(p.fall)}})
	return p
}

// unowned returns what nobody owns of n partitions, sorted.
func (w *world) unowned(n int) (all []int32) {
	for id := range int32(n) {
		if !slices.ContainsFunc(w.members, func(m *member) bool { return slices.Contains(m.owned(), id) }) {
			all = append(all, id)
		}
	}
	return all
}

// aside waits until the healthy members own all that is theirs but what the sick one has kept, and nothing else is without an
// owner than what their mapping gives to the sick one.
func (w *world) aside(p *patient, kept []int32, n int, healthy ...*member) (waiting []int32) {
	w.t.Helper()
	w.within(changeBound, "the healthy members own theirs, and what nobody owns is the sick member's", func() bool {
		for _, m := range healthy {
			for _, id := range m.share(m.name) {
				if slices.Contains(m.owned(), id) == slices.Contains(kept, id) {
					return false
				}
			}
		}
		waiting = nil
		for _, id := range healthy[0].share(p.name) {
			if !slices.Contains(kept, id) {
				waiting = append(waiting, id)
			}
		}
		slices.Sort(waiting)
		return w.agreed(p, healthy) && slices.Equal(w.unowned(n), waiting)
	})
	return waiting
}

// done is how much the member has worked.
func (p *patient) done() int {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	return p.pieces
}

// stale checks that a member has kept its mapping, works on and says why.
func (p *patient) stale(kept []int32, opened map[int32]int) {
	p.t.Helper()
	if got := p.owned(); !slices.Equal(got, kept) || !maps.Equal(p.openings(), opened) {
		p.t.Errorf("the sick member owns %v, it had %v", got, kept)
	}
	s := p.alloc.Snapshot()
	if s == nil || !errors.Is(s.Err, allocator.ErrFuncFailed) || !errors.Is(s.Err, allocfn.ErrPanic) {
		p.t.Errorf("its snapshot is %v", s)
	}
	if p.told(allocfn.ErrPanic) == 0 || p.log.says("panicked") == 0 {
		p.t.Errorf("not said: told %v, logged\n%s", p.errors(), p.log)
	}
}

// A function that panics on one member, as one of a version of its own may: the member says so, keeps what it had and works on;
// the others own what is theirs and not held by it. What the new mapping gives to the member has no owner, and nothing bounds
// that but the next change after the function works again, or Rebalance.
func TestFunctionPanics(t *testing.T) {
	const n = 24
	for _, name := range []string{"a", "z"} { // first by name and last
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				defer w.end()
				p := w.broken(name, n)
				p.start()
				b, c := w.join("b", setup{}), w.join("c", setup{})
				w.within(timeout, "start", func() bool { return even(n, p.member, b, c) })
				time.Sleep(10 * time.Second)

				kept, opened := p.owned(), p.openings()
				p.set(true)
				d := w.join("d", setup{})
				waiting := w.aside(p, kept, n, b, c, d)
				failed := func() float64 { return p.metric("kiel_rebalance_errors_total", "stage=compute") }
				w.within(changeBound, "the sick member has seen it too", func() bool { return failed() > 0 && p.told(allocfn.ErrPanic) > 0 })
				once := failed()
				p.stale(kept, opened)
				did := p.done()
				time.Sleep(time.Minute)
				did = p.done() - did
				if still := w.aside(p, kept, n, b, c, d); len(still) == 0 || !slices.Equal(still, waiting) {
					t.Errorf("%v have no owner, a minute before %v", still, waiting)
				}
				_ = b.leave()
				w.aside(p, kept, n, c, d)
				w.within(changeBound, "the sick member has seen that too", func() bool { return failed() > once })
				p.stale(kept, opened)
				if did < len(kept)*59*10 {
					t.Errorf("it did %d pieces of work in a minute", did)
				}
				t.Attr("waiting_without_bound", strconv.Itoa(len(waiting)))

				p.set(false)
				time.Sleep(time.Minute)
				p.stale(kept, opened) // a pure function is not called again for nothing
				if err := p.alloc.Rebalance(t.Context()); err != nil {
					t.Errorf("Rebalance: %v", err)
				}
				w.within(changeBound, "all is owned after Rebalance", func() bool { return even(n, p.member, c, d) })
				if err := p.alloc.Snapshot().Err; err != nil {
					t.Errorf("cured, and its snapshot says %v", err)
				}

				time.Sleep(10 * time.Second)
				kept = p.owned()
				p.set(true)
				e := w.join("e", setup{})
				w.aside(p, kept, n, c, d, e)
				p.set(false)
				_ = c.leave()
				w.within(changeBound, "all is owned after the next change", func() bool { return even(n, p.member, d, e) })
			})
		})
	}
}

// A member whose function panics from the start is never ready and owns nothing; the others own the rest, and all again when it
// is gone.
func TestFunctionPanicsFromTheStart(t *testing.T) {
	const n = 24
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.end()
		b, c := w.join("b", setup{allocator: allocator.Options{Seed: seed(n)}}), w.join("c", setup{})
		w.within(timeout, "start", func() bool { return even(n, b, c) })
		time.Sleep(10 * time.Second)
		p := w.broken("a", n)
		p.set(true)
		p.start()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := p.alloc.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Ready: %v", err)
		}
		p.stale(nil, map[int32]int{})
		if waiting := w.aside(p, nil, n, b, c); len(waiting) != n/3 {
			t.Errorf("%v are given to it", waiting)
		}
		_ = p.leave()
		w.within(changeBound, "all is owned again", func() bool { return even(n, b, c) })
	})
}

// When the function panics on all members nothing moves, whoever comes, and all moves when it works again.
func TestFunctionPanicsOnAll(t *testing.T) {
	const n = 24
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.end()
		var all []*patient
		var members []*member
		for _, name := range []string{"a", "b", "c", "d"} {
			all = append(all, w.broken(name, n))
			members = append(members, all[len(all)-1].member)
		}
		for _, p := range all[:3] {
			p.start()
		}
		w.within(timeout, "start", func() bool { return even(n, members[:3]...) })
		time.Sleep(10 * time.Second)
		opened := map[string]map[int32]int{}
		for _, p := range all {
			opened[p.name] = p.openings()
			p.set(true)
		}
		all[3].start()
		time.Sleep(time.Minute)
		if !even(n, members[:3]...) {
			t.Errorf("something moved\n%s", w.state())
		}
		for _, p := range all {
			p.stale(p.owned(), opened[p.name])
			p.set(false)
		}
		for _, p := range all {
			if err := p.alloc.Rebalance(t.Context()); err != nil {
				t.Errorf("%s: Rebalance: %v", p.name, err)
			}
		}
		w.within(changeBound, "all is owned, evenly", func() bool { return even(n, members...) })
	})
}
