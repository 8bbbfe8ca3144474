package history_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/session"
)

// The model of a Queue: entries in the order of their priority and number, of which Get takes the first.

// put is a Put. Its number is that of its path, unknown when the reply was lost.
type put struct {
	value    int64
	priority int
	number   int64
}

const unknown = -1

// get is a Get that returned a value.
type get struct {
	value  int64
	begin  int  // the number of its begin, 0 if the value must be the first of all
	behind bool // it need not know what was put after the value either
}

// begin is the moment at which a Get begins: what is put later it need not know. They are numbered in their order.
type begin struct{ id int }

// removal is a Get that returned a value but can't tell whether it took it off, nor whether another did.
type removal struct{ value int64 }

// empty is a TryGet that found nothing.
type empty struct{}

func (p put) String() string {
	return fmt.Sprintf("put %d, priority %d → number %d", p.value, p.priority, p.number)
}

func (g get) String() string {
	return fmt.Sprintf("get%s → %d", map[bool]string{true: ", perhaps behind,"}[g.behind], g.value)
}
func (b begin) String() string   { return fmt.Sprintf("get %d begins", b.id) }
func (r removal) String() string { return fmt.Sprintf("get → %d, uncertain", r.value) }
func (empty) String() string     { return "get → empty" }

// fifo is a state of a queue. Slices are never changed.
type fifo struct {
	follows bool  // some may not see all
	begun   int   // the last begin
	number  int64 // the last one known
	entries []entry
}

type entry struct {
	value    int64
	priority int
	after    int   // the last begin before it was put
	number   int64 // the last one known when it was put, if it matters
}

func (s fifo) put(p put) (bool, fifo) {
	if p.number != unknown {
		if p.number <= s.number {
			return false, s
		}
		s.number = p.number
	}
	e := entry{value: p.value, priority: p.priority, after: s.begun}
	if s.follows {
		e.number = s.number
	}
	s.entries = append(slices.Clone(s.entries), e)
	slices.SortStableFunc(s.entries, func(a, b entry) int { return cmp.Compare(a.priority, b.priority) })
	return true, s
}

// take removes a value, of which known says what must not be in front of it.
func (s fifo) take(value int64, known func(front, e entry) bool) (bool, fifo) {
	i := slices.IndexFunc(s.entries, func(e entry) bool { return e.value == value })
	if i < 0 || slices.ContainsFunc(s.entries[:i], func(front entry) bool { return known(front, s.entries[i]) }) {
		return false, s
	}
	s.entries = slices.Delete(slices.Clone(s.entries), i, i+1)
	return true, s
}

func (s fifo) get(g get) (bool, fifo) {
	return s.take(g.value, func(front, e entry) bool {
		return g.begin == 0 || front.after < g.begin && (!g.behind || front.number < e.number || front.priority == e.priority)
	})
}

func queueModel(follows bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return fifo{follows: follows, number: -1} },
		Step: func(state, in, _ any) (bool, any) {
			s := state.(fifo)
			switch in := in.(type) {
			case put:
				return both(s.put(in))
			case begin:
				s.begun = in.id
				return true, s
			case get:
				return both(s.get(in))
			case removal:
				return both(s.take(in.value, func(_, _ entry) bool { return false }))
			case empty:
				return len(s.entries) == 0, s
			}
			return false, s
		},
		Equal: func(a, b any) bool {
			s, t := a.(fifo), b.(fifo)
			return s.begun == t.begun && s.number == t.number && slices.Equal(s.entries, t.entries)
		},
		DescribeOperation: describe,
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state.(fifo).entries) },
	}
}

// outcomes says what became of puts and gets without an outcome, by what others have seen. A value that somebody got was put
// before. One that nobody ever got makes no difference: all that is there at the end is got. Of those who got a value and can't
// tell whether they took it, one did, at any time, unless another has surely done so.
//
// Begins are numbered here.
func outcomes(ops []porcupine.Operation) []porcupine.Operation {
	got, sure, removals := map[int64]int64{}, map[int64]bool{}, map[int64]porcupine.Operation{}
	note := func(value int64, op porcupine.Operation) {
		if first, ok := got[value]; !ok || op.Return < first {
			got[value] = op.Return
		}
	}
	for _, op := range ops {
		switch in := op.Input.(type) {
		case get:
			note(in.value, op)
			sure[in.value] = true
		case take:
			note(in.value, op)
		case removal:
			note(in.value, op)
			if first, ok := removals[in.value]; !ok || op.Call < first.Call {
				op.Return = never
				removals[in.value] = op
			}
		}
	}
	var kept []porcupine.Operation
	for _, op := range ops {
		switch in := op.Input.(type) {
		case removal:
			continue
		case put:
			if op.Return == never {
				seen, ok := got[in.value]
				if _, removed := removals[in.value]; !ok || removed && !sure[in.value] {
					delete(removals, in.value) // it came and went
					continue
				}
				op.Return = seen
			}
		}
		kept = append(kept, op)
	}
	for value, op := range removals {
		if !sure[value] {
			kept = append(kept, op)
		}
	}
	return numbered(kept)
}

// numbered puts a begin in front of each get that need not know all.
func numbered(ops []porcupine.Operation) []porcupine.Operation {
	slices.SortStableFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var all []porcupine.Operation
	begins := 0
	for _, op := range ops {
		if g, ok := op.Input.(get); ok && g.begin != 0 {
			begins++
			g.begin = begins
			op.Input = g
			all = append(all, porcupine.Operation{ClientId: op.ClientId, Input: begin{begins}, Call: op.Call, Return: op.Call})
		}
		all = append(all, op)
	}
	return all
}

// putter is a Queue or a LockingQueue.
type putter interface {
	Put(ctx context.Context, value []byte, priority int) (string, error)
}

// puts has clients put values that differ.
type puts struct {
	*run

	hist       *history
	priorities int
	last       atomic.Int64
}

func (p *puts) put(ctx context.Context, q putter, client int, rng *rand.Rand) error {
	in := put{value: p.last.Add(1), priority: rng.IntN(p.priorities), number: unknown}
	call := p.hist.tick()
	path, err := q.Put(ctx, []byte(strconv.FormatInt(in.value, 10)), in.priority)
	switch {
	case err == nil:
		in.number = number(path)
		p.hist.done(client, call, in)
		p.hist.count("put")
	case errors.Is(err, session.ErrUncertain):
		p.hist.open(client, call, in)
		p.hist.count("uncertain put")
	case !errors.Is(err, context.DeadlineExceeded):
		p.hist.fault("client %d: %v", client, err)
	}
	return err
}

// number returns the number that the server gave an entry.
func number(path string) int64 {
	return must(strconv.ParseInt(path[strings.LastIndexByte(path, '-')+1:], 10, 64))
}

// valueOf returns the value of an entry's data.
func valueOf(data []byte) int64 { return must(strconv.ParseInt(string(data), 10, 64)) }

// queues is one Queue.
type queues struct {
	puts

	path    string
	clients []*queue.Queue
}

func newQueues(r *run) *subject         { return newQueue(r, "/queue", 1) }
func newPriorityQueues(r *run) *subject { return newQueue(r, "/priorities", 3) }

func newQueue(r *run, name string, priorities int) *subject {
	q := &queues{puts: puts{run: r, hist: newHistory(), priorities: priorities}, path: r.path + name}
	s := &subject{hist: q.hist, model: queueModel(r.follows), settle: q.settle, resolve: outcomes, narrow: narrowed}
	for i, one := range r.sessions {
		q.clients = append(q.clients, must(queue.New(one, q.path, queue.Options{})))
		s.steps = append(s.steps, func(ctx context.Context, rng *rand.Rand) { q.step(ctx, rng, i) })
	}
	return s
}

func (q *queues) step(ctx context.Context, rng *rand.Rand, client int) {
	within, cancel := context.WithTimeout(ctx, q.upTo(rng, 3000))
	defer cancel()
	// More is got than put, so that the queue stays short: where in it a value stands whose put was uncertain shows when it is
	// got, and until then the checker has to try.
	switch rng.IntN(9) {
	case 0, 1, 2:
		_ = q.put(within, q.clients[client], client, rng)
	case 3, 4:
		_ = q.get(within, client, q.clients[client].TryGet)
	default:
		_ = q.get(within, client, q.clients[client].Get)
	}
	q.pause(q.upTo(rng, 600))
}

// get notes what a Get returned.
func (q *queues) get(ctx context.Context, client int, one func(context.Context) ([]byte, error)) error {
	call := q.hist.tick()
	sees := q.catchUp(ctx, client)
	value, err := one(ctx)
	all := sees()
	if q.sabotaged && err == nil && call%3 == 0 {
		value, err = one(ctx) // the first is forgotten
	}
	switch {
	case err == nil:
		in := get{value: valueOf(value)}
		if q.priorities > 1 {
			in.begin, in.behind = 1, !all
			q.hist.count(map[bool]string{true: "got, seeing all", false: "got, perhaps behind"}[all])
		}
		q.hist.done(client, call, in)
		q.hist.count("got")
	case value != nil && errors.Is(err, session.ErrUncertain):
		q.hist.done(client, call, removal{valueOf(value)})
		q.hist.count("uncertain get")
	case errors.Is(err, queue.ErrEmpty):
		if all {
			q.hist.done(client, call, empty{})
			q.hist.count("empty")
		}
	case !errors.Is(err, context.DeadlineExceeded):
		q.hist.fault("client %d: %v", client, err)
	}
	return err
}

// catchUp has a client's server catch up, for what only a queue with priorities shows. A Get that comes then sees all that was
// put before it was called, if sees says so afterwards: a write has come after that in the client's session, whose later reads
// see no less. (A Sync does not do: the leader that answers it may be deposed.)
func (q *queues) catchUp(ctx context.Context, client int) (sees func() bool) {
	if !q.follows || q.priorities == 1 {
		return func() bool { return !q.follows }
	}
	s, fence := q.sessions[client], q.path+"-fence"
	inc := s.Current()
	if inc == nil {
		return func() bool { return false }
	}
	_, err := inc.Set(ctx, fence, nil, -1)
	if errors.Is(err, session.ErrNoNode) {
		err = inc.EnsurePath(ctx, fence) // it may be there by now: then this has written nothing
		if err == nil {
			_, err = inc.Set(ctx, fence, nil, -1)
		}
	}
	return func() bool { return err == nil && s.Current() == inc }
}

// settle puts one more value and gets all that is there.
func (q *queues) settle(ctx context.Context) {
	q.quiet()
	if err := q.put(ctx, q.clients[0], 0, rand.New(rand.NewPCG(q.seed, math.MaxUint64))); err != nil {
		q.hist.fault("can't put when all is well: %v", err)
	}
	for {
		within, cancel := context.WithTimeout(ctx, 30*time.Second)
		err := q.get(within, 0, q.clients[0].TryGet)
		cancel()
		switch {
		case errors.Is(err, queue.ErrEmpty):
			if q.follows {
				call := q.hist.tick()
				if n, err := q.clients[0].Len(ctx); err != nil || n > 0 {
					q.hist.fault("the queue is empty, but has %d entries: %v", n, err)
				}
				q.hist.done(0, call, empty{})
			}
			return
		case err != nil:
			q.hist.fault("can't get when all is well: %v", err)
			return
		}
	}
}
