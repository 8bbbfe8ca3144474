package history_test

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/anishathalye/porcupine"
)

// never is when an operation returns of which nobody knows whether it was done: it may be done at any time, or not at all, which
// is the same as after everything else.
const never = math.MaxInt64

// history is what clients did with one thing. Its clock counts what happened: of two operations one came before the other if it
// had returned before that one was called. Times of day have no part in that.
type history struct {
	mu    sync.Mutex
	clock int64
	ops   []porcupine.Operation
	live  []*hold
	holds int
	seen  map[string]int // what happened, so that it can be told whether anything did
	wrong []string       // what needs no checker
}

func newHistory() *history { return &history{seen: map[string]int{}} }

// tick returns the present, and lets time pass.
func (h *history) tick() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.next()
}

// next is tick with the lock held.
func (h *history) next() int64 {
	h.clock++
	return h.clock
}

func (h *history) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ops)
}

// done notes an operation that has returned just now.
func (h *history) done(client int, call int64, what any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(client, call, h.next(), what)
}

// at notes what was so from the moment on at which an operation was called.
func (h *history) at(client int, call int64, what any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(client, call, call, what)
}

// open notes an operation that may be done at any time, or never.
func (h *history) open(client int, call int64, what any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(client, call, never, what)
}

// add is called with the lock held.
func (h *history) add(client int, call, ret int64, what any) {
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: what, Call: call, Return: ret})
}

// count notes that something happened.
func (h *history) count(what string) { h.countAll(what, 1) }

// countAll notes that something happened so many times.
func (h *history) countAll(what string, times int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen[what] += times
}

// fault notes what must never happen, in whatever order.
func (h *history) fault(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrong = append(h.wrong, fmt.Sprintf(format, args...))
}

// operations returns what was noted.
func (h *history) operations() []porcupine.Operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.ops)
}

// hold is what a client has for a while. Nobody knows the moment at which it ends: that lies between the last time it was seen to
// be valid and the first at which it was not.
type hold struct {
	id     int
	client int
	shared bool             // others may have one at the same time
	look   func(id int) any // what to note if it is valid at this moment, nil if it is not
	valid  int64            // when it was last seen to be
}

// acquired notes a new hold. What others have at this moment is looked at, because now it matters.
func (h *history) acquired(client int, call int64, what, look func(id int) any) *hold {
	h.mu.Lock()
	h.holds++
	x := &hold{id: h.holds, client: client, look: look, valid: h.next()}
	noted := what(x.id)
	if a, ok := noted.(acquire); ok {
		x.shared = a.shared
	}
	h.add(client, call, x.valid, noted)
	h.live = append(h.live, x)
	h.seen["acquired"]++
	others := slices.Clone(h.live[:len(h.live)-1])
	h.mu.Unlock()
	beside := 0
	for _, one := range others {
		if h.probe(one) && one.shared {
			beside++
		}
	}
	if h.probe(x) && x.shared {
		h.countAll("beside another", beside)
	}
	return x
}

// probe notes whether a hold is valid, and returns that.
func (h *history) probe(x *hold) bool {
	call := h.tick()
	what := x.look(x.id)
	if what == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	x.valid = max(x.valid, h.next())
	h.add(x.client, call, h.clock, what)
	return true
}

// finished notes that a hold has ended.
func (h *history) finished(x *hold, what any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget(x)
	h.add(x.client, x.valid, h.next(), what)
}

// left notes that a hold has ended of which something may still be there.
func (h *history) left(x *hold, what any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget(x)
	if what != nil {
		h.add(x.client, x.valid, never, what)
	}
}

// quiet has a hold not looked at any more.
func (h *history) quiet(x *hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget(x)
}

// forget is called with the lock held.
func (h *history) forget(x *hold) {
	h.live = slices.DeleteFunc(h.live, func(one *hold) bool { return one == x })
}
