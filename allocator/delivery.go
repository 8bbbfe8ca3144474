package allocator

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/usercall"
	"github.com/kielgo/kiel/session"
)

// maxErrors is how many errors may wait for OnError behind a slow callback.
const maxErrors = 64

// The callbacks, as errors and the log name them.
const (
	callOnError     = "OnError"
	callOnRebalance = "OnRebalance"
)

// delivery calls the user's callbacks, one at a time. The loop passes snapshots and errors to it, and never waits for it.
type delivery struct {
	onRebalance func(context.Context, Rebalance)
	onError     func(context.Context, error)
	lifetime    func(*session.Incarnation) context.Context
	log         *slog.Logger
	metrics     *metrics
	calls       usercall.Queue

	life     context.Context  //nolint:containedctx // the parent of callbacks' contexts; Run sets it, and stopping
	stopping context.Context  //nolint:containedctx // ends when Run begins to stop
	share    []kiel.Partition // this member's partitions in the last Rebalance; only calls use it
}

func newDelivery(opts Options, lifetime func(*session.Incarnation) context.Context, log *slog.Logger, troubles *errlog.Log, m *metrics) *delivery {
	d := &delivery{onRebalance: opts.OnRebalance, onError: opts.OnError, lifetime: lifetime, log: log, metrics: m}
	d.calls.Guard = usercall.Guard{Package: pkg, Err: ErrCallback, Log: troubles}
	d.calls.Limit, d.calls.Stuck, d.calls.Done, d.calls.Most = callbackTimeout, d.stuck, d.done, maxErrors
	return d
}

// snapshot queues a call of OnRebalance. It replaces one that waits.
func (d *delivery) snapshot(s *Snapshot) {
	if d.onRebalance != nil {
		d.calls.PutNewest(usercall.Callback{Kind: callOnRebalance}, func() { d.rebalance(s) })
	}
}

// error queues a call of OnError.
func (d *delivery) error(err error) {
	if d.onError != nil {
		d.calls.Put(usercall.Callback{Kind: callOnError}, func() {
			ctx, cancel := d.context()
			defer cancel(nil)
			d.onError(ctx, err)
		})
	}
}

// context returns the context of a callback, which within recognizes until end is called. It ends with life and with end. It also
// ends with stopping, unless stopping has ended before.
func (d *delivery) context() (ctx context.Context, end context.CancelCauseFunc) {
	returned := new(atomic.Bool)
	ctx, cancel := context.WithCancelCause(context.WithValue(d.life, d, returned))
	forget := func() bool { return true }
	if d.stopping.Err() == nil {
		forget = context.AfterFunc(d.stopping, func() { cancel(ErrStopped) })
	}
	return ctx, func(cause error) {
		returned.Store(true)
		forget()
		cancel(cause)
	}
}

// within reports whether ctx is that of a callback that has not returned, or derived from it.
func (d *delivery) within(ctx context.Context) bool {
	returned, ok := ctx.Value(d).(*atomic.Bool)
	return ok && !returned.Load()
}

// rebalance calls OnRebalance. The call's context also ends with trust in the session on which the snapshot rests.
func (d *delivery) rebalance(s *Snapshot) {
	ctx, cancel := d.context()
	defer cancel(nil)
	if s.Incarnation != nil {
		if trust := d.lifetime(s.Incarnation); trust.Err() == nil {
			defer context.AfterFunc(trust, func() { cancel(context.Cause(trust)) })()
		}
	}
	r := Rebalance{Snapshot: s, Added: without(s.mine, d.share), Removed: without(d.share, s.mine)}
	d.share = s.mine
	start := time.Now()
	defer func() { d.metrics.callback.Observe(time.Since(start).Seconds()) }()
	d.onRebalance(ctx, r)
}

// stuck reports that a callback does not return.
func (d *delivery) stuck(what usercall.Callback) (again bool) {
	d.metrics.callbackFailed.Inc()
	d.log.ErrorContext(d.life, "callback has not returned", "callback", what.Kind, "after", callbackTimeout)
	return false
}

// done reports that a callback panicked or ended its goroutine.
func (d *delivery) done(what usercall.Callback, failure error) {
	if failure == nil {
		return
	}
	d.metrics.callbackFailed.Inc()
	if what.Kind != callOnError { // OnError might panic again, for ever
		d.error(failure)
	}
}
