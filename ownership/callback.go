package ownership

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/kielgo/kiel/allocfn"
)

// guard calls a function of the user's, and then hands its panic to then, as an
// error, or nil. It may be the last that its goroutine does: f may end that.
func (o *Owner) guard(name string, f func(), then func(error)) {
	returned := false
	defer func() {
		var err error
		v := recover()
		switch {
		case v != nil:
			err = fmt.Errorf("%w: %s: %v", ErrCallback, name, v)
			o.log.Error("callback panicked", "callback", name, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		case !returned:
			err = fmt.Errorf("%w: %s: runtime.Goexit was called", ErrCallback, name)
			o.log.Error("callback ended its goroutine", "callback", name, "stack", string(debug.Stack()))
		}
		if err != nil {
			o.metrics.failed.WithLabelValues(stageCallback).Inc()
		}
		then(err)
	}()
	f()
	returned = true
}

// The callbacks, by the names of their options.
const (
	callObserver = "Observer"
	callOnError  = "OnError"
	callAccept   = "Accept"
)

// minCallbackTimeout keeps a short RebalanceTimeout from making a callback that is merely slow count as stuck.
const minCallbackTimeout = 5 * time.Second

// callbackTimeout is how long a callback may take before it counts as stuck.
func (o *Owner) callbackTimeout() time.Duration {
	return max(o.opts.RebalanceTimeout, minCallbackTimeout)
}

// call calls a callback, on a goroutine of its own, which it may end, and has the
// loop told when it does not return.
func (l *loop) call(name string, f func()) error {
	var returned atomic.Bool
	stuck := func() {
		if !returned.Load() {
			l.onStuckCallback(name)
		}
	}
	timer := l.after(l.o.callbackTimeout(), func() {
		// Looked at twice: after a process was stopped for long both are over at once, the time and the call.
		if !returned.Load() {
			l.after(time.Second, stuck)
		}
	})
	defer timer.Stop()
	done := make(chan error)
	go l.o.guard(name, f, func(err error) {
		returned.Store(true)
		done <- err
	})
	return <-done
}

// onStuckCallback: a callback takes too long. Without Observer nothing is opened and nothing released,
// without Accept no plan is acted on. So that nobody waits for ever for what this member has, it leaves.
func (l *loop) onStuckCallback(name string) {
	err := fmt.Errorf("%w: %s has not returned for %v", ErrStuck, name, l.o.callbackTimeout())
	l.o.metrics.failed.WithLabelValues(stageCallback).Inc()
	l.complain(err)
	if name == callOnError || l.phase != working {
		return
	}
	l.err = err
	l.startLeaving()
}

// observe calls the observer.
func (l *loop) observe(e Event) {
	if err := l.call(callObserver, func() { l.o.opts.Observer(e) }); err != nil {
		l.report(err)
	}
}

// report has OnError called.
func (l *loop) report(err error) {
	l.errors.put(func() {
		_ = l.call(callOnError, func() { l.o.opts.OnError(err) }) // told again it might panic for ever
	})
}

// accept asks whether a partition can be consumed.
func (l *loop) accept(id allocfn.Partition) (err error) {
	if panicked := l.call(callAccept, func() { err = l.o.opts.Accept(id) }); panicked != nil {
		return panicked
	}
	return err
}
