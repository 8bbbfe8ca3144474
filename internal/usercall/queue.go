package usercall

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// Queue makes calls one at a time, in the order in which they were put in. Who puts one in does not wait. There is a goroutine
// while there is something to call, and none before and after.
type Queue struct {
	Guard Guard
	Limit time.Duration // after which a call is said to be stuck
	// Stuck is told of a call that is stuck, and again after each further Limit if it asks for that.
	Stuck func(what Callback) (again bool)
	// Done is told of each call that is over, before the next begins. failure says why it did not return, nil if it did.
	Done func(what Callback, failure error)
	Most int // how many calls of Put wait at most; of more the oldest are dropped

	mu     sync.Mutex
	waits  []waiting
	puts   int    // how many of them are of Put
	busy   bool   // a goroutine runs
	caller string // the number of the goroutine that made the newest call
	shut   bool   // nothing is put in any more
	ended  chan struct{}
}

// waiting is a call that waits.
type waiting struct {
	Callback

	f      func()
	newest bool // it was put in by PutNewest
}

// Put has f called after what was put in before.
func (q *Queue) Put(what Callback, f func()) {
	q.put(waiting{Callback: what, f: f}, func() {
		if q.puts++; q.puts > q.Most {
			q.remove(slices.IndexFunc(q.waits, func(w waiting) bool { return !w.newest }))
			q.puts--
		}
	})
}

// PutNewest has f called in the place of what waits that PutNewest has put in for the same kind, so that what keeps coming is not put
// off for ever behind what Put has put in meanwhile. If nothing of the kind waits, f is called after what was put in before.
func (q *Queue) PutNewest(what Callback, f func()) {
	q.put(waiting{Callback: what, f: f, newest: true}, func() {
		last := len(q.waits) - 1
		if i := slices.IndexFunc(q.waits, func(w waiting) bool { return w.newest && w.Kind == what.Kind }); i < last {
			q.waits[i] = q.waits[last]
			q.remove(last)
		}
	})
}

// put adds w, and bound drops what is too much.
func (q *Queue) put(w waiting, bound func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.shut {
		return
	}
	q.waits = append(q.waits, w)
	bound()
	if !q.busy {
		q.busy = true
		go q.run()
	}
}

// remove drops what waits at i.
func (q *Queue) remove(i int) { q.waits = slices.Delete(q.waits, i, i+1) }

// Close returns what is closed when all that waits was called, and what these calls put in; from then on nothing is.
func (q *Queue) Close() (called <-chan struct{}) { return q.end(false) }

// Discard drops what waits, and nothing is put in any more. What it returns is closed when the call under way has returned, one
// that is just about to begin included.
func (q *Queue) Discard() (returned <-chan struct{}) { return q.end(true) }

func (q *Queue) end(discard bool) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if discard {
		q.shut, q.waits = true, nil
	}
	if q.ended == nil {
		q.ended = make(chan struct{})
		q.drained()
	}
	return q.ended
}

// drained closes ended, if it is there, unless a goroutine runs.
func (q *Queue) drained() {
	if !q.busy && q.ended != nil {
		q.shut = true
		close(q.ended)
	}
}

// run makes the calls that wait. A call that ends its goroutine leaves the others to the next one.
func (q *Queue) run() {
	id := goroutineID()
	over := false
	defer func() {
		if !over {
			go q.run()
		}
	}()
	for {
		w, ok := q.take(id)
		if !ok {
			over = true
			return
		}
		returned := Watch(q.Limit, func(time.Duration) bool { return q.Stuck(w.Callback) })
		q.Guard.Call(w.Callback, w.f, func(failure error) {
			returned()
			q.Done(w.Callback, failure)
		})
	}
}

// take returns the next call for the goroutine of that number; false when there is none, and the goroutine is to end.
func (q *Queue) take(id string) (waiting, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waits) == 0 {
		q.waits, q.busy = nil, false
		q.drained()
		return waiting{}, false
	}
	w := q.waits[0]
	q.waits[0], q.waits = waiting{}, q.waits[1:]
	if !w.newest {
		q.puts--
	}
	q.caller = id
	return w, true
}

// Within reports whether a call of the Queue is what calls it: who then waited for the end of that call would wait for itself.
//
// Only the goroutine tells. A context tells nothing, for a callback may have been given none, and may call with another. Nor
// does it help to give up waiting once all but one call has ended: who is not within has to wait for that one, too. Go names
// a goroutine nowhere but at the head of its stack.
func (q *Queue) Within() bool {
	q.mu.Lock()
	caller := q.caller
	q.mu.Unlock()
	return caller == goroutineID()
}

// goroutineID returns the number of the calling goroutine, as a panic prints it.
func goroutineID() string {
	buf := make([]byte, 64)
	header := string(buf[:runtime.Stack(buf, false)]) // "goroutine 7 [running]: …"
	id, _, _ := strings.Cut(strings.TrimPrefix(header, "goroutine "), " ")
	return id
}
