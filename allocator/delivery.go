package allocator

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/usercall"
	"github.com/kielgo/kiel/session"
)

// maxErrors is how many errors wait behind a slow callback.
const maxErrors = 64

// delivery calls the user's callbacks, on one goroutine, one at a time. The
// loop hands over to it and never waits for it.
type delivery struct {
	onRebalance func(context.Context, Rebalance)
	onError     func(error)
	lifetime    func(*session.Incarnation) context.Context
	log         *slog.Logger
	metrics     *metrics

	goroutine atomic.Pointer[string] // that runs the callbacks
	share     []allocfn.Partition    // that OnRebalance was told last; of that goroutine, as are
	dueErrs   []error                // what it has taken, and not delivered yet
	due       *Snapshot

	mu     sync.Mutex
	next   *Snapshot // the newest that OnRebalance was not told; nil when told
	errs   []error
	closed bool
	wake   chan struct{} // holds one
}

// snapshot hands over a snapshot for OnRebalance; one that waits is replaced.
func (d *delivery) snapshot(s *Snapshot) { d.put(func() { d.next = s }) }

// error hands over an error for OnError.
func (d *delivery) error(err error) {
	d.put(func() {
		d.errs = append(d.errs, err)
		if len(d.errs) > maxErrors {
			d.errs = d.errs[1:]
		}
	})
}

// close lets run return when it has delivered what waits.
func (d *delivery) close() { d.put(func() { d.closed = true }) }

func (d *delivery) put(f func()) {
	d.mu.Lock()
	f()
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *delivery) take() (errs []error, next *Snapshot, closed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	errs, next, closed = d.errs, d.next, d.closed
	d.errs, d.next = nil, nil
	return errs, next, closed
}

// run delivers until close, or until life ends. A callback's context ends with
// stopping, unless that has ended before the call, and with life.
func (d *delivery) run(life, stopping context.Context) {
	for over := false; !over; {
		ended := make(chan struct{})
		go func() { // which a callback may end
			defer close(ended)
			d.deliver(life, stopping)
			over = true
		}()
		<-ended
	}
}

func (d *delivery) deliver(life, stopping context.Context) {
	id := goroutineID()
	d.goroutine.Store(&id)
	for {
		if len(d.dueErrs) == 0 && d.due == nil {
			var closed bool
			if d.dueErrs, d.due, closed = d.take(); len(d.dueErrs) == 0 && d.due == nil {
				if closed {
					return
				}
				select {
				case <-d.wake:
				case <-life.Done():
					return
				}
			}
			continue
		}
		if len(d.dueErrs) > 0 {
			err := d.dueErrs[0]
			d.dueErrs = d.dueErrs[1:]
			if d.onError != nil && life.Err() == nil {
				d.call(life, "OnError", func() { d.onError(err) })
			}
			continue
		}
		next, told := d.due, d.share
		d.due = nil
		if d.onRebalance != nil && life.Err() == nil {
			d.share = next.mine
			d.rebalance(life, stopping, Rebalance{
				Snapshot: next,
				Added:    without(next.mine, told),
				Removed:  without(told, next.mine),
			})
		}
	}
}

func (d *delivery) rebalance(life, stopping context.Context, r Rebalance) {
	ctx, cancel := context.WithCancelCause(life)
	defer cancel(nil)
	if stopping.Err() == nil {
		defer context.AfterFunc(stopping, func() { cancel(ErrStopped) })()
	}
	if r.Snapshot.Incarnation != nil {
		if trust := d.lifetime(r.Snapshot.Incarnation); trust.Err() == nil {
			defer context.AfterFunc(trust, func() { cancel(context.Cause(trust)) })()
		}
	}
	start := time.Now()
	d.call(ctx, "OnRebalance", func() { d.onRebalance(ctx, r) })
	d.metrics.duration.WithLabelValues(stageCallback).Observe(time.Since(start).Seconds())
}

// call runs a callback and reports its panic, that it ended its goroutine, and
// that it does not return.
func (d *delivery) call(ctx context.Context, name string, f func()) {
	returned := usercall.Watch(callbackTimeout, func(time.Duration) bool {
		d.metrics.failed.WithLabelValues(stageCallback).Inc()
		d.log.ErrorContext(ctx, "callback has not returned", "callback", name, "after", callbackTimeout)
		return false
	})
	usercall.Guard{Err: ErrCallback, Log: d.log}.Call(name, f, func(failure error) {
		returned()
		if failure == nil {
			return
		}
		d.metrics.failed.WithLabelValues(stageCallback).Inc()
		if name != "OnError" { // which might panic for ever
			d.error(failure)
		}
	})
}

// within says whether it is called by a callback.
func (d *delivery) within() bool {
	id := d.goroutine.Load()
	return id != nil && *id == goroutineID()
}

// goroutineID returns the number of the calling goroutine, as a panic prints
// it. It is asked for when a callback might wait for itself, and nowhere else.
func goroutineID() string {
	buf := make([]byte, 64)
	header := string(buf[:runtime.Stack(buf, false)]) // "goroutine 7 [running]: …"
	id, _, _ := strings.Cut(strings.TrimPrefix(header, "goroutine "), " ")
	return id
}
