// Package usercall calls functions that the user gave. A panic, runtime.Goexit or a call that never returns affects that call
// alone, and is reported to the caller.
package usercall

import (
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/kielgo/kiel/internal/operr"
)

// minLimit keeps a short time-out from making a call that is merely slow count as stuck.
const minLimit = 5 * time.Second

// Limit returns how long a call may take before it counts as stuck, where handlers have so long to return.
func Limit(timeout time.Duration) time.Duration { return max(timeout, minLimit) }

// Callback is what is called, as errors and the log name it.
type Callback struct {
	Kind  string // such as "handler"; fixed in the code
	About string // what the call is about, such as a partition: its failure ends by a success about the same; "" if it is about nothing
	Name  string // in errors; "" for Kind
}

// Log coalesces the failures of one kind, as that of package errlog does. It asks for the stack when it writes that.
type Log interface {
	FailedAt(kind, about string, err error, stack func() string)
	OK(kind, about string)
	Failing() bool
}

// Trouble is the kind that failures of a kind of callbacks have in the log.
func Trouble(callbacks string) string { return "panic in " + callbacks }

// Guard makes calls. Panics are logged as errors of one kind; the stack is logged with the first, and again after 10 s at the
// earliest.
type Guard struct {
	Package string // the package's name in errors
	Err     error  // what a call that failed is an error of
	Log     Log
}

// Call calls f, and then calls then with the reason why f did not return, or nil. If f ends its goroutine, Call does not return.
func (g Guard) Call(c Callback, f func(), then func(failure error)) {
	name := c.Name
	if name == "" {
		name = c.Kind
	}
	returned := false
	defer func() {
		var failure error
		v := recover()
		switch {
		case v != nil:
			failure = operr.New(g.Package, "", "", fmt.Errorf("%w: %s: %v", g.Err, name, v))
		case !returned:
			failure = operr.New(g.Package, "", "", fmt.Errorf("%w: %s: runtime.Goexit was called", g.Err, name))
		}
		switch {
		case failure != nil:
			g.Log.FailedAt(Trouble(c.Kind), c.About, failure, func() string { return string(debug.Stack()) })
		case g.Log.Failing():
			g.Log.OK(Trouble(c.Kind), c.About)
		}
		then(failure)
	}()
	f()
	returned = true
}

// Watch calls stuck with the time since a call began, if it has not returned within limit plus a second, and again after each
// further limit while stuck returns true. The call begins now; the caller calls returned when it has returned.
func Watch(limit time.Duration, stuck func(since time.Duration) (again bool)) (returned func()) {
	w := &watch{limit: limit, stuck: stuck, began: time.Now()}
	// It looks twice: when a process goes on that was stopped for long, the timer fires and the call returns at the same moment.
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
