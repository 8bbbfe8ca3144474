package allocator

import (
	"context"
	"log/slog"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/usercall"
	"github.com/kielgo/kiel/session"
)

// maxErrors is how many errors wait behind a slow callback.
const maxErrors = 64

// The callbacks, as errors and the log name them.
const (
	callOnError     = "OnError"
	callOnRebalance = "OnRebalance"
)

// delivery has the user's callbacks called, one at a time. The loop hands over
// to it and never waits for it.
type delivery struct {
	onRebalance func(context.Context, Rebalance)
	onError     func(error)
	lifetime    func(*session.Incarnation) context.Context
	log         *slog.Logger
	metrics     *metrics
	calls       usercall.Queue

	life     context.Context  //nolint:containedctx // of callbacks; set by Run, as is the next
	stopping context.Context  //nolint:containedctx // ends when Run begins to stop
	share    []kiel.Partition // that OnRebalance was told last; of the calls
}

func newDelivery(opts Options, lifetime func(*session.Incarnation) context.Context, log *slog.Logger, troubles *errlog.Log, m *metrics) *delivery {
	d := &delivery{onRebalance: opts.OnRebalance, onError: opts.OnError, lifetime: lifetime, log: log, metrics: m}
	d.calls.Guard = usercall.Guard{Err: ErrCallback, Log: troubles}
	d.calls.Limit, d.calls.Stuck, d.calls.Done, d.calls.Most = callbackTimeout, d.stuck, d.done, maxErrors
	return d
}

// snapshot hands over a snapshot for OnRebalance; one that waits is replaced.
func (d *delivery) snapshot(s *Snapshot) {
	if d.onRebalance != nil {
		d.calls.PutNewest(usercall.Callback{Kind: callOnRebalance}, func() { d.rebalance(s) })
	}
}

// error hands over an error for OnError.
func (d *delivery) error(err error) {
	if d.onError != nil {
		d.calls.Put(usercall.Callback{Kind: callOnError}, func() { d.onError(err) })
	}
}

// rebalance calls OnRebalance, with a context that ends with life, with stopping, unless that has ended before the call, and
// with the trust in the session on which the snapshot rests.
func (d *delivery) rebalance(s *Snapshot) {
	ctx, cancel := context.WithCancelCause(d.life)
	defer cancel(nil)
	if d.stopping.Err() == nil {
		defer context.AfterFunc(d.stopping, func() { cancel(ErrStopped) })()
	}
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
	if what.Kind != callOnError { // which might panic for ever
		d.error(failure)
	}
}
