package ownership

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/usercall"
)

// guard calls a function of the user's, and then hands its panic to then, as an
// error, or nil. It may be the last that its goroutine does: f may end that.
func (o *Owner) guard(c usercall.Callback, f func(), then func(error)) {
	usercall.Guard{Err: ErrCallback, Log: o.troubles}.Call(c, f, func(failure error) {
		if failure != nil {
			o.metrics.handlerFailed.Inc()
		}
		then(failure)
	})
}

// The callbacks, by the names of their options, and the handler.
const (
	callObserver = "Observer"
	callOnError  = "OnError"
	callAccept   = "Accept"
	callHandler  = "handler"
)

// call calls a callback, on a goroutine of its own, which it may end, and has the
// loop told when it does not return.
func (l *loop) call(name, about string, f func()) error {
	limit := usercall.Limit(l.o.opts.RebalanceTimeout)
	var over, late atomic.Bool
	returned := usercall.Watch(limit, func(time.Duration) bool {
		late.Store(true)
		l.post(func() {
			if !over.Load() { // it may be by now
				l.onStuckCallback(name, limit)
			}
		})
		return false
	})
	done := make(chan error)
	go l.o.guard(usercall.Callback{Kind: name, About: about}, f, func(failure error) {
		over.Store(true)
		returned()
		done <- failure
	})
	failure := <-done
	if late.Load() {
		l.post(func() { l.recovered(troubleCallback, name) })
	}
	return failure
}

// onStuckCallback: a callback takes too long. Without Observer nothing is opened and nothing released,
// without Accept no plan is acted on. So that nobody waits for ever for what this member has, it leaves.
func (l *loop) onStuckCallback(name string, limit time.Duration) {
	err := fmt.Errorf("%w: %s has not returned for %v", ErrStuck, name, limit)
	l.o.metrics.handlerFailed.Inc()
	l.failed(troubleCallback, name, err)
	if name == callOnError || l.phase != working {
		return
	}
	l.err = err
	l.startLeaving()
}

// observe calls the observer.
func (l *loop) observe(e Event) {
	if err := l.call(callObserver, e.Kind.String(), func() { l.o.opts.Observer(e) }); err != nil {
		l.report(err)
	}
}

// report has OnError called.
func (l *loop) report(err error) {
	l.errors.put(func() {
		_ = l.call(callOnError, "", func() { l.o.opts.OnError(err) }) // told again it might panic for ever
	})
}

// accept asks whether a partition can be consumed.
func (l *loop) accept(id kiel.Partition) (err error) {
	if panicked := l.call(callAccept, id.String(), func() { err = l.o.opts.Accept(id) }); panicked != nil {
		return panicked
	}
	return err
}
