package stack_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/zktest"
)

const (
	drain = 5 * time.Second  // RebalanceTimeout of sick members
	stop  = 10 * time.Second // StopTimeout of all
)

// sickness is what is wrong with a member, and how long the others may have to wait for what it has.
type sickness struct {
	setup  func(p *patient) setup
	bound  time.Duration
	leaves bool   // the member leaves the group
	err    error  // what OnError or Run says
	log    string // what the log says
	metric string
	label  string
}

// patient is the sick member; cure ends what it is stuck in, before the bubble ends.
type patient struct {
	*member
	well  chan struct{}
	ill   bool // false until the group has settled
	stops int
}

// stall waits for ever, once the member is ill.
func (p *patient) stall() {
	if p.sick() {
		<-p.well
	}
}

func (p *patient) fall() {
	if p.sick() {
		panic("sick")
	}
}

// stop is what a callback should not do.
func (p *patient) stop() {
	if p.sick() {
		p.mu.Lock()
		p.stops++
		p.mu.Unlock()
		_ = p.owner.Stop(context.Background())
	}
}

func (p *patient) sick() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ill
}

func (p *patient) set(ill bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ill = ill
}

// handle is a handler that does what f does when it is told to end.
func (p *patient) handle(f func()) ownership.Handler {
	return func(ctx context.Context, c *ownership.Claim) error {
		_ = p.work(ctx, c)
		f()
		return nil
	}
}

// function is RoundRobin, when f lets it.
func (p *patient) function(f func()) allocfn.Func {
	fn := allocfn.RoundRobin()
	assign := fn.Assign
	fn.Assign = func(in allocfn.Input) (allocfn.Assignment, error) {
		f()
		return assign(in)
	}
	return fn
}

func (p *patient) rebalance(f func()) setup {
	return setup{allocator: allocator.Options{OnRebalance: func(context.Context, allocator.Rebalance) { f() }}}
}

func (p *patient) observe(f func()) setup {
	return setup{owner: ownership.Options{Observer: func(ownership.Event) { f() }}}
}

func (p *patient) hear(f func()) setup {
	return setup{
		handler: func(ctx context.Context, c *ownership.Claim) error {
			_ = p.work(ctx, c)
			return errors.New("complaint")
		},
		allocator: allocator.Options{OnError: func(context.Context, error) { f() }},
		owner:     ownership.Options{OnError: func(error) { f() }},
	}
}

// sicknesses are all that are known.
func sicknesses() map[string]sickness {
	return map[string]sickness{
		"handlers stuck for ever": {
			setup: func(p *patient) setup { return setup{handler: p.handle(p.stall)} },
			bound: drain + changeBound, err: ownership.ErrStuck, log: "stuck", metric: "kiel_drain_timeouts_total",
		},
		"handlers panic": {
			setup: func(p *patient) setup { return setup{handler: p.handle(p.fall)} },
			bound: changeBound, err: ownership.ErrCallback, log: "panicked", metric: "kiel_rebalance_errors_total", label: "stage=handler",
		},
		"handlers call Stop": {
			setup: func(p *patient) setup { return setup{handler: p.handle(p.stop)} },
			bound: stop, leaves: true, err: ownership.ErrStuck, log: "stuck", metric: "kiel_drain_timeouts_total",
		},
		"OnRebalance never returns": {
			setup: func(p *patient) setup { return p.rebalance(p.stall) },
			bound: changeBound, log: "has not returned", metric: "kiel_rebalance_errors_total", label: "stage=callback",
		},
		"OnRebalance panics": {
			setup: func(p *patient) setup { return p.rebalance(p.fall) },
			bound: changeBound, err: allocator.ErrCallback, log: "panicked", metric: "kiel_rebalance_errors_total", label: "stage=callback",
		},
		"OnRebalance calls Stop": {
			setup: func(p *patient) setup { return p.rebalance(p.stop) },
			bound: stop, leaves: true, err: ownership.ErrStuck,
		},
		"OnError never returns": {
			setup: func(p *patient) setup { return p.hear(p.stall) },
			bound: changeBound, log: "has not returned", metric: "kiel_rebalance_errors_total", label: "stage=handler",
		},
		"OnError panics": {
			setup: func(p *patient) setup { return p.hear(p.fall) },
			bound: changeBound, log: "panicked", metric: "kiel_rebalance_errors_total", label: "stage=handler",
		},
		"OnError calls Stop": {
			setup: func(p *patient) setup { return p.hear(p.stop) },
			bound: stop, leaves: true, err: ownership.ErrStuck,
		},
		"Observer never returns": {
			setup: func(p *patient) setup { return p.observe(p.stall) },
			bound: drain + time.Second + stop, leaves: true, err: ownership.ErrStuck, log: "Observer has not returned",
			metric: "kiel_rebalance_errors_total", label: "stage=handler",
		},
		"Observer panics": {
			setup: func(p *patient) setup { return p.observe(p.fall) },
			bound: changeBound, err: ownership.ErrCallback, log: "panicked", metric: "kiel_rebalance_errors_total", label: "stage=handler",
		},
		"Observer calls Stop": {
			setup: func(p *patient) setup { return p.observe(p.stop) },
			bound: stop, leaves: true, err: ownership.ErrStuck,
		},
		"Accept panics": {
			setup: func(p *patient) setup {
				return setup{owner: ownership.Options{Accept: func(kiel.Partition) error { p.fall(); return nil }}}
			},
			bound: changeBound, err: ownership.ErrCallback, log: "panicked", metric: "kiel_unclaimable_partitions", label: "reason=refused",
		},
		"Accept never returns": {
			setup: func(p *patient) setup {
				return setup{owner: ownership.Options{Accept: func(kiel.Partition) error { p.stall(); return nil }}}
			},
			bound: drain + time.Second + changeBound, leaves: true, err: ownership.ErrStuck, log: "Accept has not returned",
			metric: "kiel_rebalance_errors_total", label: "stage=handler",
		},
		"the function blocks for 10 s": {
			setup: func(p *patient) setup {
				return setup{allocator: allocator.Options{Func: p.function(func() {
					if p.sick() {
						time.Sleep(10 * time.Second)
					}
				})}}
			},
			bound: 10*time.Second + changeBound, err: allocator.ErrFuncFailed, log: "not returned", metric: "kiel_rebalance_errors_total", label: "stage=compute",
		},
		"the function never returns": {
			setup: func(p *patient) setup { return setup{allocator: allocator.Options{Func: p.function(p.stall)}} },
			bound: -1, err: allocator.ErrFuncFailed, log: "not returned", metric: "kiel_rebalance_errors_total", label: "stage=compute",
		},
		"the function panics": {
			setup: func(p *patient) setup { return setup{allocator: allocator.Options{Func: p.function(p.fall)}} },
			bound: -1, err: allocator.ErrFuncFailed, log: "function", metric: "kiel_rebalance_errors_total", label: "stage=compute",
		},
	}
}

// One sick member does not hold up the others: what it does not have moves at once, what it has within a bound; and it is said.
func TestSickMember(t *testing.T) {
	for name, s := range sicknesses() {
		for _, sick := range []string{"a", "z"} { // first by name and last
			t.Run(fmt.Sprintf("%s/%s", name, sick), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { fallSick(t, s, sick) })
			})
		}
	}
}

func fallSick(t *testing.T, s sickness, name string) {
	const n = 24
	w := newWorld(t)
	p := &patient{well: make(chan struct{})}
	opts := s.setup(p)
	opts.allocator.Seed = seed(n)
	opts.owner.RebalanceTimeout, opts.owner.StopTimeout, opts.allocator.StopTimeout = drain, stop, stop
	p.member = w.make(name, opts)
	p.start()
	defer w.end()
	defer close(p.well)
	b, c := w.join("b", setup{}), w.join("c", setup{})
	w.within(timeout, "start", func() bool { return even(n, p.member, b, c) })
	time.Sleep(10 * time.Second)

	p.set(true)
	d := w.join("d", setup{})
	one := w.settle(p, s, "a member joined", b, c, d)
	time.Sleep(20 * time.Second)
	kept, before := d.owned(), d.openings()
	_ = b.leave()
	two := w.settle(p, s, "a member left", c, d)
	for now, held := d.openings(), d.owned(); len(kept) > 0; kept = kept[1:] {
		if id := kept[0]; slices.Contains(held, id) && now[id] != before[id] {
			t.Errorf("partition %d of a healthy member was closed and opened again", id)
		}
	}
	c.link.BlackHole(zktest.Both) // a crash
	three := w.settle(p, s, "a member crashed", d)
	t.Logf("own all they should after a join %v, a leave %v, a crash %v", one, two, three)
	if s.leaves && !even(n, d) {
		t.Errorf("the sick member has left, and not all is owned by the last one:\n%s", w.state())
	}
	c.link.Heal()
	time.Sleep(10 * time.Second)

	if s.leaves {
		w.within(drain+time.Second+stop, "the sick member has ended", func() bool { return closed(p.ran) })
		stuck := errors.Is(s.err, ownership.ErrStuck) && errors.Is(p.err, allocator.ErrStuck) // whose time was over first says so
		if s.err != nil && !stuck && !errors.Is(p.err, s.err) {
			t.Errorf("Run of the sick member: %v, want %v", p.err, s.err)
		}
	} else if s.err != nil && p.told(s.err) == 0 {
		t.Errorf("OnError was not told of %v, but of: %v", s.err, p.errors())
	}
	if s.log != "" && p.log.says(s.log) == 0 {
		t.Errorf("the log does not say %q:\n%s", s.log, p.log)
	}
	if s.metric != "" {
		if v := p.metric(s.metric, s.label); v == 0 {
			t.Errorf("%s %s is 0", s.metric, s.label)
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// settle waits until the healthy members own what is theirs: what the sick one does not have at once, after a crash as soon as
// that is known, the rest within the sickness's bound. The sick one may get more of it in between: what the others release before
// it leaves.
func (w *world) settle(p *patient, s sickness, what string, healthy ...*member) time.Duration {
	w.t.Helper()
	has := p.owned()
	began := time.Now()
	first := changeBound
	if len(healthy) == 1 {
		first = crashBound
	}
	owns := func(except []int32) bool {
		for _, m := range healthy {
			share := m.share(m.name)
			for _, id := range share {
				if !slices.Contains(except, id) && !slices.Contains(m.owned(), id) {
					return false
				}
			}
		}
		return w.agreed(p, healthy)
	}
	w.within(first, what+": the partitions that the sick member does not have are owned", func() bool {
		has = append(has, p.owned()...)
		slices.Sort(has)
		has = slices.Compact(has)
		return owns(has)
	})
	if s.bound >= 0 {
		w.within(first+s.bound, what+": all partitions of healthy members are owned", func() bool { return owns(nil) })
	}
	return time.Since(began)
}

// agreed says whether the healthy members know of each other, and of nobody else but the sick one.
func (w *world) agreed(p *patient, healthy []*member) bool {
	for _, m := range healthy {
		s := m.alloc.Snapshot()
		if s == nil {
			return false
		}
		var names []string
		for _, one := range s.Members {
			if one != p.name {
				names = append(names, one)
			}
		}
		if len(names) != len(healthy) {
			return false
		}
	}
	return true
}
