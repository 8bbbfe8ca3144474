package history_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/anishathalye/porcupine"

	"github.com/kielgo/kiel/recipe/counter"
	"github.com/kielgo/kiel/session"
)

// The model of a Counter is a register. Each change has a power of four of its own, which it adds, takes off or sets, so that a
// number tells which changes it is made of.

// add is an Add or a Subtract.
type add struct {
	change    int64 // negative if it is taken off
	pre, post string
	perhaps   bool // it is not known whether it was done, nor the numbers
}

// set is a Set or, of change 0, a Reset.
type set struct {
	change  int64
	pre     string
	perhaps bool
}

// read is a Get.
type read struct{ value string }

func (a add) String() string {
	if a.perhaps {
		return fmt.Sprintf("add change %d, uncertain", a.change)
	}
	return fmt.Sprintf("add change %d: %s → %s", a.change, a.pre, a.post)
}

func (s set) String() string {
	if s.perhaps {
		return fmt.Sprintf("set change %d, uncertain", s.change)
	}
	return fmt.Sprintf("set change %d: %s → %v", s.change, s.pre, power(s.change))
}
func (r read) String() string { return "get → " + r.value }

// power returns the number of a change. That of 0 is 0.
func power(change int64) *big.Int {
	n := new(big.Int)
	switch {
	case change > 0:
		return n.Exp(big.NewInt(4), big.NewInt(change-1), nil)
	case change < 0:
		return n.Neg(power(-change))
	}
	return n
}

// changesIn returns the changes that a number is made of.
func changesIn(text string) []int64 {
	n, ok := new(big.Int).SetString(text, 10)
	if !ok {
		panic(text)
	}
	var list []int64
	four, digit := big.NewInt(4), new(big.Int)
	for change := int64(1); n.Sign() != 0; change++ {
		n.DivMod(n, four, digit)
		if digit.Int64() == 3 { // -1
			n.Add(n, big.NewInt(1))
		}
		if digit.Sign() != 0 {
			list = append(list, change)
		}
	}
	return list
}

func counterModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return "0" },
		Step: func(state, in, _ any) (bool, any) {
			s := state.(string)
			switch in := in.(type) {
			case add:
				if in.perhaps {
					n, _ := new(big.Int).SetString(s, 10)
					return true, n.Add(n, power(in.change)).String()
				}
				return s == in.pre, in.post
			case set:
				return in.perhaps || s == in.pre, power(in.change).String()
			case read:
				return s == in.value, s
			}
			return false, s
		},
		DescribeOperation: describe,
	}
}

// changed says what became of changes without an outcome. One that somebody saw in a number was made before; one that nobody ever
// saw makes no difference: if it was made, all that there was after it was something that came over it. Only of a reset nothing
// can be seen: it may come at any time.
func changed(ops []porcupine.Operation) []porcupine.Operation {
	saw := map[int64]int64{}
	note := func(value string, op porcupine.Operation) {
		for _, change := range changesIn(value) {
			if first, ok := saw[change]; !ok || op.Return < first {
				saw[change] = op.Return
			}
		}
	}
	for _, op := range ops {
		switch in := op.Input.(type) {
		case add:
			if !in.perhaps {
				note(in.pre, op)
				note(in.post, op)
			}
		case set:
			if !in.perhaps {
				note(in.pre, op)
			}
		case read:
			note(in.value, op)
		}
	}
	var kept []porcupine.Operation
	for _, op := range ops {
		change := int64(0)
		switch in := op.Input.(type) {
		case add:
			change = max(in.change, -in.change)
		case set:
			change = in.change
		}
		if op.Return == never && change != 0 {
			seen, ok := saw[change]
			if !ok {
				continue
			}
			op.Return = seen
		}
		kept = append(kept, op)
	}
	return kept
}

// tally is a state of a counter to which all add 1, so that clients often write the same number. Nobody can tell then which of
// the uncertain changes were made: only how many may have been, and were not seen yet.
type tally struct {
	value, perhaps int64
}

// be tells whether the number can be this one now.
func (s tally) be(text string) (bool, tally) {
	value := must(strconv.ParseInt(text, 10, 64))
	more := value - s.value
	return 0 <= more && more <= s.perhaps, tally{value, s.perhaps - more}
}

func onesModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return tally{} },
		Step: func(state, in, _ any) (bool, any) {
			s := state.(tally)
			switch in := in.(type) {
			case add:
				if in.perhaps {
					s.perhaps++
					return true, s
				}
				ok, s := s.be(in.pre)
				s.value++
				return ok && strconv.FormatInt(s.value, 10) == in.post, s
			case read:
				return both(s.be(in.value))
			}
			return false, s
		},
		DescribeOperation: describe,
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}

// begun has uncertain changes possible from when they were called.
func begun(ops []porcupine.Operation) []porcupine.Operation {
	ops = slices.Clone(ops)
	for i := range ops {
		if ops[i].Return == never {
			ops[i].Return = ops[i].Call
		}
	}
	return ops
}

// counters is one Counter.
type counters struct {
	*run

	ones    bool // all add 1
	hist    *history
	clients []*counter.Counter[*big.Int]
	last    atomic.Int64
}

func newCounters(r *run) *subject {
	c := &counters{run: r, hist: newHistory()}
	s := &subject{hist: c.hist, model: counterModel(), settle: c.settle, resolve: changed}
	for i, one := range r.sessions {
		c.clients = append(c.clients, must(counter.NewBig(one, r.path+"/counter", counter.Options[*big.Int]{})))
		s.steps = append(s.steps, func(ctx context.Context, rng *rand.Rand) { c.step(ctx, rng, i) })
	}
	return s
}

func newOnes(r *run) *subject {
	c := &counters{run: r, ones: true, hist: newHistory()}
	s := &subject{hist: c.hist, model: onesModel(), settle: c.settle, resolve: begun}
	for i, one := range r.sessions {
		c.clients = append(c.clients, must(counter.NewBig(one, r.path+"/ones", counter.Options[*big.Int]{})))
		s.steps = append(s.steps, func(ctx context.Context, rng *rand.Rand) { c.step(ctx, rng, i) })
	}
	return s
}

// change returns the next change.
func (c *counters) change() int64 {
	if c.ones {
		return 1
	}
	return c.last.Add(1)
}

func (c *counters) step(ctx context.Context, rng *rand.Rand, client int) {
	within, cancel := context.WithTimeout(ctx, c.upTo(rng, 3000))
	defer cancel()
	switch kind := rng.IntN(12); {
	case kind < 5 || kind < 9 && c.ones:
		c.add(within, client, c.change())
	case kind < 7:
		c.add(within, client, -c.last.Add(1))
	case kind < 8:
		c.set(within, client, c.last.Add(1))
	case kind < 9:
		c.set(within, client, 0)
	default:
		c.get(within, client)
	}
	c.pause(c.upTo(rng, 600))
}

// outcome notes a change if it was made, or may have been.
func (c *counters) outcome(client int, call int64, err error, done, perhaps any) {
	switch {
	case err == nil:
		c.hist.done(client, call, done)
		c.hist.count("changed")
	case errors.Is(err, session.ErrUncertain):
		c.hist.open(client, call, perhaps)
		c.hist.count("uncertain change")
	case !errors.Is(err, context.DeadlineExceeded):
		c.hist.fault("client %d: %v", client, err)
	}
}

func (c *counters) add(ctx context.Context, client int, change int64) {
	one, n := c.clients[client], power(max(change, -change))
	do := one.Add
	if change < 0 {
		do = one.Subtract
	}
	call := c.hist.tick()
	post, err := do(ctx, n)
	if c.sabotaged && errors.Is(err, session.ErrUncertain) && ctx.Err() == nil {
		post, err = do(ctx, n)
	}
	done := add{change: change}
	if err == nil {
		pre := c.pre(client, post)
		done.pre, done.post = pre.String(), post.String()
		if want := new(big.Int).Add(pre, power(change)); want.Cmp(post) != 0 {
			c.hist.fault("client %d added %v to %v and got %v", client, power(change), pre, post)
		}
	}
	c.outcome(client, call, err, done, add{change: change, perhaps: true})
}

func (c *counters) set(ctx context.Context, client int, change int64) {
	one, n := c.clients[client], power(change)
	do := func() error { return one.Set(ctx, n) }
	if change == 0 {
		do = func() error { return one.Reset(ctx) }
	}
	call := c.hist.tick()
	err := do()
	if c.sabotaged && errors.Is(err, session.ErrUncertain) && ctx.Err() == nil {
		err = do()
	}
	done := set{change: change}
	if err == nil {
		done.pre = c.pre(client, n).String()
	}
	c.outcome(client, call, err, done, set{change: change, perhaps: true})
}

// pre returns the number before the client's last change.
func (c *counters) pre(client int, post *big.Int) *big.Int {
	last, ok := c.clients[client].Last()
	if !ok || last.Post.Cmp(post) != 0 {
		c.hist.fault("client %d made it %v, but Last returns %v, %v", client, post, last, ok)
		return new(big.Int)
	}
	return last.Pre
}

// get notes what the number is, or, of a server that may be behind, was at some time.
func (c *counters) get(ctx context.Context, client int) {
	call := c.hist.tick()
	n, err := c.clients[client].Get(ctx)
	switch {
	case err == nil && c.follows:
		c.hist.done(client, 0, read{n.String()})
	case err == nil:
		c.hist.done(client, call, read{n.String()})
	case !errors.Is(err, context.DeadlineExceeded):
		c.hist.fault("client %d: %v", client, err)
	}
}

// settle has all clients change it and look at it once more.
func (c *counters) settle(ctx context.Context) {
	c.quiet()
	for i := range c.clients {
		before := c.hist.len()
		c.add(ctx, i, c.change())
		c.get(ctx, i)
		if c.hist.len() < before+2 {
			c.hist.fault("client %d can't change it when all is well", i)
		}
	}
}
