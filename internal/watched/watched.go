// Package watched keeps what a znode says in immutable views, of which the newest is at hand at any time: the part that the
// readers of single znodes have in common. A Reader reads again on each hint of a watch, on each new incarnation of the session
// and at least once per session timeout; so it never misses the latest state, though it may skip some.
package watched

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/kielgo/kiel/session"
)

// Options say how a znode is read. All fields are needed. The functions are called by Run alone, one at a time, but for
// Newer.
type Options[V any] struct {
	Session *session.Session
	Path    string // of the znode
	Package string // whose reader this is, for errors

	// Look reads the znode, or its absence, and watches it. It creates nothing. changed says that a watch has told of a
	// change. Otherwise the znode may be as it was read last, which its metadata tell without its data.
	Look func(ctx context.Context, inc *session.Incarnation, changed bool) (*V, *session.Watch, error)

	// Refused is the view of a read that failed though the session is well, by an ACL for instance.
	Refused func(err error) *V

	// Complete fills in what a view needs from the one before, which is nil for the first, before it is published.
	Complete func(ctx context.Context, inc *session.Incarnation, before, v *V)

	// Newer reports whether Updates yields v after before.
	Newer func(before, v *V) bool
}

// Reader reads one znode. Its methods may be called from any goroutine, Run once at a time.
type Reader[V any] struct {
	opts    Options[V]
	current atomic.Pointer[publication[V]] // never nil

	refresh    chan chan struct{} // to Run: read again, and close it when that is published
	refreshing []chan struct{}    // of Run
	synced     uint64             // of Run: the history that was looked at after a Sync; 0 before the first
}

// publication is a view and the signal that there is a newer one.
type publication[V any] struct {
	view *V
	next chan struct{}
}

// New returns a reader; it does no I/O.
func New[V any](opts Options[V]) *Reader[V] {
	r := &Reader[V]{opts: opts, refresh: make(chan chan struct{})}
	r.current.Store(&publication[V]{next: make(chan struct{})})
	return r
}

// View returns the newest view, nil before the first. It never blocks.
func (r *Reader[V]) View() *V { return r.current.Load().view }

// Updates yields the newest view, and then each that is newer in the sense of Options. A slow caller misses some, but
// always gets to the latest. It ends when ctx does or the caller breaks off. Any number may run at once.
func (r *Reader[V]) Updates(ctx context.Context) iter.Seq[*V] {
	return func(yield func(*V) bool) {
		var last *V
		for ctx.Err() == nil {
			p := r.current.Load()
			if v := p.view; v != nil && (last == nil || r.opts.Newer(last, v)) {
				if !yield(v) {
					return
				}
				last = v
				continue
			}
			select {
			case <-p.next:
			case <-ctx.Done():
			}
		}
	}
}

// Run reads and publishes until ctx ends; then it returns nil. It returns an error only when the session has ended for
// good.
func (r *Reader[V]) Run(ctx context.Context) error {
	for {
		inc, err := r.opts.Session.Incarnation(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // an orderly end
		}
		if err != nil {
			return fmt.Errorf("%s: watch %s: %w", r.opts.Package, r.opts.Path, err)
		}
		r.watch(ctx, inc)
	}
}

// watch reads again whenever there is reason to, as long as the incarnation lasts.
func (r *Reader[V]) watch(ctx context.Context, inc *session.Incarnation) {
	changed := false
	for ctx.Err() == nil && inc.Context().Err() == nil {
		view, watch, err := r.look(ctx, inc, changed)
		switch {
		case ctx.Err() != nil, errors.Is(err, session.ErrClosed), session.Retryable(err):
			return // Run asks for the next incarnation
		case err != nil:
			// Nothing tells when that changes.
			view = r.opts.Refused(fmt.Errorf("%s: read %s: %w", r.opts.Package, r.opts.Path, err))
		}
		old := r.current.Load()
		r.opts.Complete(ctx, inc, old.view, view)
		r.current.Store(&publication[V]{view: view, next: make(chan struct{})})
		close(old.next)
		r.answer()
		changed = r.pause(ctx, inc, watch)
	}
}

// look is Options.Look, after a Sync if somebody waits for what is there now. A Sync also comes before the first look of a
// history. A server that lags would show that session older data than were read before, as if they were from a backup.
func (r *Reader[V]) look(ctx context.Context, inc *session.Incarnation, changed bool) (*V, *session.Watch, error) {
	if len(r.refreshing) > 0 || r.synced != inc.History() {
		if err := inc.Sync(ctx, r.opts.Path); err != nil {
			return nil, nil, err
		}
		r.synced = inc.History()
	}
	return r.opts.Look(ctx, inc, changed)
}

// Refresh makes Run read again, after a Sync, and waits until the view is published. It returns an error when ctx ends
// before.
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
			return fmt.Errorf("%s: refresh %s: %w", r.opts.Package, r.opts.Path, context.Cause(ctx))
		}
	}
}

// answer tells the callers of Refresh that what they asked for is published.
func (r *Reader[V]) answer() {
	for _, done := range r.refreshing {
		close(done)
	}
	r.refreshing = nil
}

// pause waits for a hint of the watch, and returns whether it told of a change. Without a watch it waits one session timeout.
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
