package history_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/session"
)

// The model of a LockingQueue is one of each entry: it is put, held by one at a time, and consumed by one who holds it. The order
// in which entries are held is no part of it; that in which the last ones are is looked at when all is quiet.

// take is a Get that returned a hold.
type take struct {
	value int64
	hold  int
	token int64
}

// holds is a hold that says that it is valid.
type holds struct {
	value int64
	hold  int
}

// ends is the end of a hold, whatever ended it but Consume.
type ends struct {
	value int64
	hold  int
}

// consume is a Consume. If nobody knows its outcome it is perhaps.
type consume struct {
	value   int64
	hold    int
	perhaps bool
}

// absent is an entry that is not there when the queue is empty.
type absent struct{ value int64 }

func (t take) String() string {
	return fmt.Sprintf("get → hold %d of %d, token %d", t.hold, t.value, t.token)
}
func (h holds) String() string { return fmt.Sprintf("hold %d of %d is valid", h.hold, h.value) }
func (e ends) String() string  { return fmt.Sprintf("hold %d of %d ends", e.hold, e.value) }
func (c consume) String() string {
	return fmt.Sprintf("consume %d by hold %d, perhaps: %v", c.value, c.hold, c.perhaps)
}
func (a absent) String() string { return fmt.Sprintf("%d is not there", a.value) }

// item is a state of an entry.
type item struct {
	there bool
	last  int // the last hold
	valid bool
	token int64
}

func (s item) step(in any) (bool, item) {
	switch in := in.(type) {
	case put:
		ok := !s.there && s.last == 0
		s.there = true
		return ok, s
	case take:
		ok := s.there && !s.valid && in.token > s.token
		return ok, item{there: true, last: in.hold, valid: true, token: in.token}
	case holds:
		return s.last == in.hold && s.valid, s
	case ends:
		if s.last == in.hold {
			s.valid = false
		}
		return true, s
	case consume:
		ok := s.there && s.last == in.hold
		if ok {
			s.there, s.valid = false, false
		}
		return ok || in.perhaps, s
	case absent:
		return !s.there, s
	}
	return false, s
}

func lockingModel() porcupine.Model {
	return porcupine.Model{
		Partition: func(ops []porcupine.Operation) [][]porcupine.Operation {
			var parts [][]porcupine.Operation
			index := map[int64]int{}
			for _, op := range ops {
				value := subjectOf(op.Input)
				i, ok := index[value]
				if !ok {
					i = len(parts)
					index[value] = i
					parts = append(parts, nil)
				}
				parts[i] = append(parts[i], op)
			}
			return parts
		},
		Init:              func() any { return item{} },
		Step:              func(state, in, _ any) (bool, any) { return both(state.(item).step(in)) },
		DescribeOperation: describe,
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}

// subjectOf returns the value that an operation is about.
func subjectOf(in any) int64 {
	switch in := in.(type) {
	case put:
		return in.value
	case take:
		return in.value
	case holds:
		return in.value
	case ends:
		return in.value
	case consume:
		return in.value
	case absent:
		return in.value
	}
	panic(fmt.Sprintf("%T", in))
}

// lockings is one LockingQueue.
type lockings struct {
	puts

	clients []*queue.LockingQueue
}

// newLockingQueues gives two clients one session: what one of them has taken is not the other's.
func newLockingQueues(r *run) *subject {
	q := &lockings{puts: puts{run: r, hist: newHistory(), priorities: 2}}
	s := &subject{hist: q.hist, model: lockingModel(), settle: q.settle, resolve: outcomes}
	for i, one := range append(slices.Clone(r.sessions), r.sessions[0]) {
		q.clients = append(q.clients, must(queue.NewLocking(one, r.path+"/locking", queue.Options{})))
		s.steps = append(s.steps, func(ctx context.Context, rng *rand.Rand) { q.step(ctx, rng, i) })
	}
	return s
}

func (q *lockings) step(ctx context.Context, rng *rand.Rand, client int) {
	within, cancel := context.WithTimeout(ctx, q.upTo(rng, 5000))
	defer cancel()
	if rng.IntN(5) < 2 {
		_ = q.put(within, q.clients[client], client, rng)
		q.pause(q.upTo(rng, 600))
		return
	}
	one := q.clients[client].Get
	if rng.IntN(4) == 0 {
		one = q.clients[client].TryGet
	}
	call := q.hist.tick()
	held, err := one(within)
	if err != nil {
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, queue.ErrEmpty) {
			q.hist.fault("client %d: %v", client, err)
		}
		q.pause(q.upTo(rng, 600))
		return
	}
	h := q.held(client, call, held)
	for range 1 + rng.IntN(3) {
		if q.sabotaged {
			q.pause(q.work(rng)) // it does not listen
		} else {
			q.pauseIn(held.Context(), q.work(rng))
		}
		q.hist.probe(h)
	}
	if held.Context().Err() != nil {
		q.hist.count("ended by itself")
	}
	value := valueOf(held.Value())
	if q.sabotaged {
		q.hist.quiet(h)
	}
	if rng.IntN(4) == 0 {
		_ = held.Release(within) // what it has not done it goes on with
		q.hist.finished(h, ends{value, h.id})
		return
	}
	if rng.IntN(2) == 0 {
		within = ctx
	}
	q.consume(within, h, held)
}

// held notes a hold.
func (q *lockings) held(client int, call int64, held *queue.Held) *hold {
	value := valueOf(held.Value())
	return q.hist.acquired(client, call,
		func(id int) any { return take{value, id, held.Token()} },
		func(id int) any {
			if held.Context().Err() == nil && held.Incarnation().Trusted() || q.sabotaged {
				return holds{value, id}
			}
			return nil
		})
}

// consume consumes what is held, and notes what came of it.
func (q *lockings) consume(ctx context.Context, h *hold, held *queue.Held) {
	in := consume{value: valueOf(held.Value()), hold: h.id}
	call := q.hist.tick()
	err := held.Consume(ctx)
	switch {
	case err == nil:
		q.hist.done(h.client, call, in)
		q.hist.count("consumed")
	case errors.Is(err, session.ErrUncertain):
		in.perhaps = true
		q.hist.open(h.client, call, in)
		q.hist.count("uncertain consume")
	case errors.Is(err, queue.ErrLost):
		q.hist.count("not consumed")
	default:
		q.hist.fault("client %d: %v", h.client, err)
	}
	q.hist.finished(h, ends{in.value, h.id})
}

// settle puts one more value and consumes all that are there: in their order, because nobody else is about.
func (q *lockings) settle(ctx context.Context) {
	q.quiet()
	one := q.clients[0]
	if err := q.put(ctx, one, 0, rand.New(rand.NewPCG(q.seed, math.MaxUint64))); err != nil {
		q.hist.fault("can't put when all is well: %v", err)
	}
	for last := ""; ; {
		call := q.hist.tick()
		n, err := one.Len(ctx)
		if err != nil {
			q.hist.fault("can't count when all is well: %v", err)
			return
		}
		if n == 0 {
			for value := range q.last.Load() {
				q.hist.done(0, call, absent{value + 1})
			}
			return
		}
		within, cancel := context.WithTimeout(ctx, 30*time.Second)
		call = q.hist.tick()
		held, err := one.Get(within)
		cancel()
		if err != nil {
			q.hist.fault("can't get when all is well: %v", err)
			return
		}
		if held.Path() <= last && !q.follows {
			q.hist.fault("%s comes after %s", held.Path(), last)
		}
		last = held.Path()
		q.consume(ctx, q.held(0, call, held), held)
	}
}
