package usercall

import (
	"slices"
	"sync"
	"time"
)

// Queue makes calls one at a time, in the order in which Put, PutNewest and PutMerged added them. These do not wait for the
// calls. A goroutine exists only while there is something to call.
type Queue struct {
	Guard Guard
	Limit time.Duration // after which a call is said to be stuck
	// Stuck is called for a call that is stuck, and again after each further Limit while it returns true.
	Stuck func(what Callback) (again bool)
	// Done is called after each call, before the next begins. failure says why the call did not return; it is nil if the call
	// returned.
	Done func(what Callback, failure error)
	Most int // how many calls of Put may wait; when there are more, the oldest are dropped; 0 for any number
	// Dropped is called for each call that is dropped so, while others wait to add one; nil for nothing.
	Dropped func()

	mu    sync.Mutex
	waits []waiting
	puts  int  // how many of waits Put has added
	busy  bool // a goroutine runs
	shut  bool // calls are not added any more
	ended chan struct{}
}

// waiting is a call that waits.
type waiting struct {
	Callback

	f     func()
	added addition
}

// addition is how a call was added.
type addition int

const (
	byPut addition = iota
	byNewest
	byMerged
)

// Put adds a call of f, after all calls that wait.
func (q *Queue) Put(what Callback, f func()) {
	q.put(waiting{Callback: what, f: f}, func() {
		if q.puts++; q.Most > 0 && q.puts > q.Most {
			q.remove(slices.IndexFunc(q.waits, func(w waiting) bool { return w.added == byPut }))
			q.puts--
			if q.Dropped != nil {
				q.Dropped()
			}
		}
	})
}

// PutNewest adds a call of f in the place of the waiting call that PutNewest has added for the same kind. So newer calls of a
// kind do not move it behind the calls that Put has added meanwhile. If no call of the kind waits, PutNewest adds f after all
// calls that wait.
func (q *Queue) PutNewest(what Callback, f func()) {
	q.put(waiting{Callback: what, f: f, added: byNewest}, func() {
		last := len(q.waits) - 1
		if i := slices.IndexFunc(q.waits, func(w waiting) bool { return w.added == byNewest && w.Kind == what.Kind }); i < last {
			q.waits[i] = q.waits[last]
			q.remove(last)
		}
	})
}

// PutMerged adds a call of f, after all calls that wait. If a call that PutMerged has added waits for the same kind and about the
// same thing, and none of Put waits behind that one, only one of the two is made: the older one if oldest is true, else the newer
// one.
func (q *Queue) PutMerged(what Callback, oldest bool, f func()) {
	q.put(waiting{Callback: what, f: f, added: byMerged}, func() {
		last := len(q.waits) - 1
		for i := last - 1; i >= 0 && q.waits[i].added != byPut; i-- {
			if w := q.waits[i]; w.added == byMerged && w.Kind == what.Kind && w.About == what.About {
				if oldest {
					i = last
				}
				q.remove(i)
				return
			}
		}
	})
}

// put adds w; then bound drops the calls that are too many.
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

// remove drops the waiting call at index i.
func (q *Queue) remove(i int) { q.waits = slices.Delete(q.waits, i, i+1) }

// Close returns a channel that is closed when no call is running or waiting, those included that the calls add. From then on no
// call is added.
func (q *Queue) Close() (called <-chan struct{}) { return q.end(false) }

// Discard drops the calls that wait. From then on no call is added. The channel is closed when the running call has returned, or
// the one that is just about to begin.
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

// drained closes ended, if Close or Discard has made it, unless a goroutine runs.
func (q *Queue) drained() {
	if !q.busy && q.ended != nil {
		q.shut = true
		close(q.ended)
	}
}

// run makes the calls that wait. When a call ends its goroutine, a new goroutine makes the other calls.
func (q *Queue) run() {
	over := false
	defer func() {
		if !over {
			go q.run()
		}
	}()
	for {
		w, ok := q.take()
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

// take returns the next call, or false when there is none: then the goroutine must end.
func (q *Queue) take() (waiting, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waits) == 0 {
		q.waits, q.busy = nil, false
		q.drained()
		return waiting{}, false
	}
	w := q.waits[0]
	q.waits[0], q.waits = waiting{}, q.waits[1:]
	if w.added == byPut {
		q.puts--
	}
	return w, true
}

// Waiting returns how many calls wait.
func (q *Queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waits)
}
