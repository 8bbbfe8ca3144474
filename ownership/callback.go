package ownership

import (
	"fmt"
	"runtime/debug"

	"github.com/kielgo/kiel/allocfn"
)

// guard calls a function of the user's, and returns its panic as an error.
func (o *Owner) guard(name string, f func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			o.log.Error("callback panicked", "callback", name, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: %s: %v", ErrCallback, name, v)
		}
	}()
	f()
	return nil
}

// observe calls the observer.
func (l *loop) observe(e Event) {
	if err := l.o.guard("Observer", func() { l.o.opts.Observer(e) }); err != nil {
		l.report(err)
	}
}

// report has OnError called.
func (l *loop) report(err error) {
	l.errors.put(func() {
		_ = l.o.guard("OnError", func() { l.o.opts.OnError(err) }) // told again it might panic for ever
	})
}

// accept asks whether a partition can be consumed.
func (l *loop) accept(id allocfn.Partition) (err error) {
	if panicked := l.o.guard("Accept", func() { err = l.o.opts.Accept(id) }); panicked != nil {
		return panicked
	}
	return err
}
