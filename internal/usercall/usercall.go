// Package usercall calls functions that the user gave. Whatever happens there, a panic, runtime.Goexit or nothing at
// all, happens to the call: who made it is told.
package usercall

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// minLimit keeps a short time-out from making a call that is merely slow count as stuck.
const minLimit = 5 * time.Second

// Limit returns how long a call may take before it counts as stuck, where handlers have so long to return.
func Limit(timeout time.Duration) time.Duration { return max(timeout, minLimit) }

// Guard makes calls. What fails is logged, with the stack.
type Guard struct {
	Err error // what a call that failed is an error of
	Log *slog.Logger
}

// Call calls f, and then tells then why f did not return, or nil. It may be the last that its goroutine does: f may end
// that.
func (g Guard) Call(name string, f func(), then func(failure error)) {
	returned := false
	defer func() {
		var failure error
		v := recover()
		switch {
		case v != nil:
			failure = fmt.Errorf("%w: %s: %v", g.Err, name, v)
			g.Log.Error("callback panicked", "callback", name, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		case !returned:
			failure = fmt.Errorf("%w: %s: runtime.Goexit was called", g.Err, name)
			g.Log.Error("callback ended its goroutine", "callback", name, "stack", string(debug.Stack()))
		}
		then(failure)
	}()
	f()
	returned = true
}

// Watch tells stuck how long a call that begins now has lasted, when it has not returned within limit and a second, and
// for as long as the answer is again, after each further limit. The caller calls returned; nothing is kept after that.
func Watch(limit time.Duration, stuck func(since time.Duration) (again bool)) (returned func()) {
	w := &watch{limit: limit, stuck: stuck, began: time.Now()}
	// Looked at twice: after a process was stopped for long both are over at once, the time and the call.
	w.after(limit, func() { w.after(time.Second, w.say) })
	return w.returned
}

// watch is a call that is watched.
type watch struct {
	limit time.Duration
	began time.Time

	mu    sync.Mutex
	stuck func(since time.Duration) (again bool) // nil when the call has returned
	timer *time.Timer                            // the newest
}

// after has f called in a while, unless the call has returned.
func (w *watch) after(d time.Duration, f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stuck != nil {
		w.timer = time.AfterFunc(d, f)
	}
}

func (w *watch) say() {
	w.mu.Lock()
	stuck := w.stuck
	w.mu.Unlock()
	if stuck != nil && stuck(time.Since(w.began)) {
		w.after(w.limit, w.say)
	}
}

func (w *watch) returned() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stuck = nil // the runtime keeps a stopped timer for a while
	w.timer.Stop()
}
