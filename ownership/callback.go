package ownership

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/usercall"
)

// The callbacks, by the names of their options, and the handler.
const (
	callObserver = "Observer"
	callOnError  = "OnError"
	callAccept   = "Accept"
	callHandler  = "handler"
)

// maxErrors is how many errors wait behind a slow OnError.
const maxErrors = 64

// callbacks calls the functions of the options.
type callbacks struct {
	o        *Owner
	observer usercall.Queue
	onError  usercall.Queue
	late     map[string]*atomic.Bool // by callback: its call takes too long
}

func newCallbacks(o *Owner) *callbacks {
	u := &callbacks{o: o, late: map[string]*atomic.Bool{callObserver: {}, callOnError: {}, callAccept: {}}}
	for _, q := range []*usercall.Queue{&u.observer, &u.onError} {
		q.Guard, q.Limit, q.Stuck = u.guard(), usercall.Limit(o.opts.RebalanceTimeout), func(c usercall.Callback) bool { return u.stuck(c.Kind) }
	}
	u.observer.Done = func(c usercall.Callback, failure error) {
		if u.returned(c.Kind, failure); failure != nil {
			u.report(failure)
		}
	}
	u.onError.Done = func(c usercall.Callback, failure error) { u.returned(c.Kind, failure) } // a panic of OnError is not reported to OnError, which might panic again
	u.onError.Most, u.onError.Dropped = maxErrors, o.metrics.errorsDropped.Inc
	return u
}

func (u *callbacks) guard() usercall.Guard {
	return usercall.Guard{Package: pkg, Err: ErrCallback, Log: u.o.troubles}
}

// stuck notifies the loop of a call that takes too long.
func (u *callbacks) stuck(name string) (again bool) {
	late := u.late[name]
	late.Store(true)
	if l := u.o.loop.Load(); l != nil {
		l.post(func() {
			if late.Load() { // it may have returned by now
				l.onStuckCallback(name, usercall.Limit(u.o.opts.RebalanceTimeout))
			}
		})
	}
	return false
}

// returned notes that a call is over, and why it did not return, if it did not.
func (u *callbacks) returned(name string, failure error) {
	if failure != nil {
		u.o.metrics.handlerFailed.Inc()
	}
	if u.late[name].Swap(false) {
		if l := u.o.loop.Load(); l != nil {
			l.post(func() { l.recovered(troubleCallback, name) })
		}
	}
}

// observed reports whether there is an Observer.
func (u *callbacks) observed() bool { return u.o.opts.Observer != nil }

// observe has the Observer called with an event about a partition, if still is true then, and calls then afterwards.
func (u *callbacks) observe(e Event, still func() bool, then func()) {
	u.observer.Put(usercall.Callback{Kind: callObserver, About: string(e.Kind)}, func() {
		defer then() // also after a panic
		if still() {
			u.o.opts.Observer(e)
		}
	})
}

// observeMerged has the Observer called with an event that is not about a partition. If an event of the same kind waits, and no
// event about a partition was put after it, only one of the two is delivered: the newer one; for Untrusted the older one, because
// its Since is when trust ended.
func (u *callbacks) observeMerged(e Event) {
	if u.observed() {
		u.observer.PutMerged(usercall.Callback{Kind: callObserver, About: string(e.Kind)}, e.Kind == Untrusted, func() { u.o.opts.Observer(e) })
	}
}

// report has OnError called, if there is one.
func (u *callbacks) report(err error) {
	if u.o.opts.OnError != nil {
		u.onError.Put(usercall.Callback{Kind: callOnError}, func() { u.o.opts.OnError(err) })
	}
}

// accept asks Accept about the partitions of a plan, on one goroutine, and returns those that it does not accept, with its
// errors. A call that panics, or ends the goroutine, is an error like any other. When ctx has ended it asks about no more.
func (u *callbacks) accept(ctx context.Context, ids []kiel.Partition) map[kiel.Partition]error {
	refused := make(map[kiel.Partition]error)
	if u.o.opts.Accept == nil {
		return refused
	}
	var asked, before atomic.Int64
	returned := usercall.Watch(usercall.Limit(u.o.opts.RebalanceTimeout), func(time.Duration) bool {
		now := asked.Load()
		return before.Swap(now) != now || u.stuck(callAccept)
	})
	for int(asked.Load()) < len(ids) && ctx.Err() == nil {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for n := asked.Load(); int(n) < len(ids) && ctx.Err() == nil; n = asked.Load() {
				u.acceptOne(ids[n], refused, &asked)
			}
		}()
		<-ended
	}
	returned()
	u.returned(callAccept, nil)
	return refused
}

func (u *callbacks) acceptOne(id kiel.Partition, refused map[kiel.Partition]error, asked *atomic.Int64) {
	u.guard().Call(usercall.Callback{Kind: callAccept, About: id.String()}, func() {
		if err := u.o.opts.Accept(id); err != nil {
			refused[id] = err
		}
	}, func(failure error) {
		if failure != nil {
			u.o.metrics.handlerFailed.Inc()
			refused[id] = failure
		}
		asked.Add(1)
	})
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
