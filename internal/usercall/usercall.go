// Package usercall calls functions that the user gave. Whatever happens there, a panic, runtime.Goexit or nothing at
// all, happens to the call: who made it is told.
package usercall

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
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
// for as long as the answer is again, after each further limit. The caller calls returned.
func Watch(limit time.Duration, stuck func(since time.Duration) (again bool)) (returned func()) {
	var over atomic.Bool
	began := time.Now()
	var say func()
	say = func() {
		if !over.Load() && stuck(time.Since(began)) {
			time.AfterFunc(limit, say)
		}
	}
	timer := time.AfterFunc(limit, func() {
		// Looked at twice: after a process was stopped for long both are over at once, the time and the call.
		if !over.Load() {
			time.AfterFunc(time.Second, say)
		}
	})
	return func() {
		over.Store(true)
		timer.Stop()
	}
}
