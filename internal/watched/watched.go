// Package watched is the common part of the readers of single znodes. A Reader publishes the state of a znode as immutable views.
// It reads again on each hint of a watch, on each new incarnation of the session and at least once per session timeout; so it
// never misses the latest state, though it may skip some.
package watched

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/latest"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/session"
)

// Options say how to read a znode. All fields are required. Only Run calls the functions, one at a time, but for Newer, which
// Updates calls.
type Options[V any] struct {
	Session *session.Session
	Path    string // the path of the znode
	Package string // the name of the reader's package, for errors

	// Look reads the znode, or its absence, and watches it. It creates nothing. changed says that a watch has reported a change.
	// Otherwise the znode may be as at the last read; its metadata show that without its data.
	Look func(ctx context.Context, inc *session.Incarnation, changed bool) (*V, *session.Watch, error)

	// Refused returns the view of a read that failed although the session works, because of an ACL for instance.
	Refused func(err error) *V

	// Complete fills in the fields of v that depend on the view before it, which is nil for the first. Run calls it before it
	// publishes v.
	Complete func(ctx context.Context, inc *session.Incarnation, before, v *V)

	// Newer reports whether Updates yields v after before.
	Newer func(before, v *V) bool
}

// Reader reads one znode. Its methods may be called from any goroutine.
type Reader[V any] struct {
	ran    atomic.Bool // Run was called
	opts   Options[V]
	latest *latest.Value[V] // nil before the first

	refresh    chan chan struct{} // requests to Run: read again, publish, then close the channel that is sent
	refreshing []chan struct{}    // the requests that Run has taken
	synced     uint64             // the history that Run has read after a Sync; 0 before the first
}

// New returns a reader; it does no I/O.
func New[V any](opts Options[V]) *Reader[V] {
	return &Reader[V]{opts: opts, latest: latest.New[V](nil), refresh: make(chan chan struct{})}
}

// View returns the newest view, nil before the first. It never blocks.
func (r *Reader[V]) View() *V { return r.latest.Load() }

// Updates yields the newest view, and then each that is newer by Options.Newer. A slow caller misses some, but always gets to the
// latest. It ends when ctx ends or the caller breaks off. Any number may run at once.
func (r *Reader[V]) Updates(ctx context.Context) iter.Seq[*V] {
	return func(yield func(*V) bool) {
		var last *V
		for v := range r.latest.Updates(ctx, nil) {
			if last != nil && !r.opts.Newer(last, v) {
				continue
			}
			if !yield(v) {
				return
			}
			last = v
		}
	}
}

// Run reads and publishes until ctx ends; then it returns nil. It returns an error only when the session has ended for good. A
// second call returns [kiel.ErrRunTwice].
func (r *Reader[V]) Run(ctx context.Context) error {
	if r.ran.Swap(true) {
		return operr.New(r.opts.Package, "", r.opts.Path, kiel.ErrRunTwice)
	}
	for {
		inc, err := r.opts.Session.Incarnation(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // an orderly end
		}
		if err != nil {
			return operr.New(r.opts.Package, "watch", r.opts.Path, err)
		}
		r.watch(ctx, inc)
	}
}

// watch reads and publishes until the incarnation or ctx ends.
func (r *Reader[V]) watch(ctx context.Context, inc *session.Incarnation) {
	changed := false
	for ctx.Err() == nil && inc.Context().Err() == nil {
		view, watch, err := r.look(ctx, inc, changed)
		switch {
		case ctx.Err() != nil, errors.Is(err, session.ErrClosed), session.Retryable(err):
			return // Run asks for the next incarnation
		case err != nil:
			// No watch reports when this changes; pause waits for a session timeout.
			view = r.opts.Refused(operr.New(r.opts.Package, "read", r.opts.Path, err))
		}
		r.opts.Complete(ctx, inc, r.latest.Load(), view)
		r.latest.Store(view)
		r.answer()
		changed = r.pause(ctx, inc, watch)
	}
}

// look calls Options.Look, after a Sync if a Refresh waits. A Sync also comes before the first look of a history: a server that
// lags would show this session older data than were read before, as if they were from a backup.
func (r *Reader[V]) look(ctx context.Context, inc *session.Incarnation, changed bool) (*V, *session.Watch, error) {
	if len(r.refreshing) > 0 || r.synced != inc.History() {
		if err := inc.Sync(ctx, r.opts.Path); err != nil {
			return nil, nil, err
		}
		r.synced = inc.History()
	}
	return r.opts.Look(ctx, inc, changed)
}

// Refresh makes Run read again, after a Sync, and waits until the view is published. It returns an error when ctx ends before.
func (r *Reader[V]) Refresh(ctx context.Context) error {
	done := make(chan struct{})
	request := r.refresh
	for {
		select {
		case request <- done:
			request = nil
		case <-done:
			return nil
		case <-ctx.Done():
			return operr.New(r.opts.Package, "refresh", r.opts.Path, context.Cause(ctx))
		}
	}
}

// answer ends the calls of Refresh whose view is published.
func (r *Reader[V]) answer() {
	for _, done := range r.refreshing {
		close(done)
	}
	r.refreshing = nil
}

// pause waits for a hint of the watch, and reports whether the watch has reported a change. Without a watch it waits one session
// timeout.
func (r *Reader[V]) pause(ctx context.Context, inc *session.Incarnation, watch *session.Watch) (changed bool) {
	if watch != nil {
		defer watch.Stop()
		select {
		case <-watch.C():
		case done := <-r.refresh:
			r.refreshing = append(r.refreshing, done)
		case <-ctx.Done():
		}
		return watch.Changed()
	}
	timer := time.NewTimer(inc.Timeout())
	defer timer.Stop()
	select {
	case <-timer.C:
	case done := <-r.refresh:
		r.refreshing = append(r.refreshing, done)
	case <-inc.Context().Done():
	case <-ctx.Done():
	}
	return false
}
