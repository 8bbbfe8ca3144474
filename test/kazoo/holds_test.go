package kazoo_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/election"
	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/recipe/semaphore"
	"github.com/kielgo/kiel/session"
)

// held is what is held in a recipe.
type held interface {
	hold
	Valid() bool
	Node() string
	Token() int64
}

// get waits for a hold.
type get func(ctx context.Context) (held, error)

// turns is a recipe in which one holds what the others wait for.
type turns struct {
	by   func(w *world, c *client, identifier string) get // one handle's
	line func(w *world) string                            // the directory in which those who wait stand, in their order
}

// inTurns are the recipes with a line, and the one without.
var inTurns = map[string]turns{
	"Lock": {
		by:   func(w *world, c *client, identifier string) get { return as(w.lock(c, identifier).Acquire) },
		line: func(w *world) string { return w.path },
	},
	"WriteLock": {
		by: func(w *world, c *client, identifier string) get {
			return as(w.lockBy(lock.NewWrite, c, lock.Options{Identifier: identifier}).Acquire)
		},
		line: func(w *world) string { return w.path },
	},
	"Semaphore": {
		by: func(w *world, c *client, identifier string) get {
			return as(w.semaphore(c, semaphore.Options{Identifier: identifier}).Acquire)
		},
		line: (*world).innerLock,
	},
	"Election": {
		by:   func(w *world, c *client, identifier string) get { return lead(w.election(c, identifier)) },
		line: func(w *world) string { return w.path },
	},
	"LockingQueue": {
		by: func(w *world, c *client, _ string) get {
			q := w.lockingQueue(c)
			isEntry := func(name string) bool { return strings.HasPrefix(name, "entry-") }
			if !slices.ContainsFunc(w.children(session.Join(w.path, "entries")), isEntry) {
				w.put(q, "the only one", queue.DefaultPriority)
			}
			return as(q.Get)
		},
	},
}

// each runs a case for each of some.
func each[R any](t *testing.T, all map[string]R, test func(w *world, one R)) {
	t.Helper()
	t.Parallel()
	for name, one := range all {
		t.Run(name, func(t *testing.T) { both(t, func(w *world) { test(w, one) }) })
	}
}

func as[H held](f func(context.Context) (H, error)) get {
	return func(ctx context.Context) (held, error) { return f(ctx) }
}

// leadership is an election's: it is held until it is released, which has the function return.
type leadership struct {
	*lock.Held
	ctx   context.Context // the function's
	back  chan struct{}   // closed when that is to return
	end   context.CancelFunc
	ended chan error // has what Run returned
}

func (l *leadership) Context() context.Context { return l.ctx }

func (l *leadership) Release(context.Context) error {
	select {
	case <-l.back:
	default:
		close(l.back)
	}
	err := <-l.ended
	l.ended <- err // for the next call
	l.end()
	return err
}

// lead returns once the leader's function was called.
func lead(e *election.Election) get {
	return func(ctx context.Context) (held, error) {
		l := &leadership{back: make(chan struct{}), ended: make(chan error, 1)}
		var life context.Context
		life, l.end = context.WithCancel(context.WithoutCancel(ctx))
		elected := make(chan struct{})
		go func() {
			l.ended <- e.Run(life, func(ctx context.Context) error {
				l.Held, l.ctx = election.Hold(ctx), ctx
				close(elected)
				<-l.back
				return nil
			})
		}()
		select {
		case <-elected:
			return l, nil
		case err := <-l.ended:
			l.end()
			return nil, err
		case <-ctx.Done():
			l.end()
			<-l.ended
			return nil, context.Cause(ctx)
		}
	}
}

// lease returns a handle on one that lasts so long by a clock that stands still.
func (w *world) lease(c *client, identifier string, units int, clock *mockClock) *lease.NonBlockingLease {
	w.Helper()
	opts := lease.Options{Identifier: identifier, Duration: time.Duration(units) * unit, Skew: time.Second, Now: clock.Now}
	return must[*lease.NonBlockingLease](w)(lease.New(c.Session, w.path, opts))
}

func newClock() *mockClock { return &mockClock{now: time.Unix(10, 0)} }

// wantLost checks that a hold has ended, and why.
func (w *world) wantLost(h held, why error) {
	w.Helper()
	w.until("the end of the hold", func() bool { return h.Context().Err() != nil })
	w.want(context.Cause(h.Context()), why)
	if h.Valid() {
		w.Error("the hold is valid")
	}
}

// wantStands checks that a hold goes on, and its znode is there.
func (w *world) wantStands(h held) {
	w.Helper()
	there, stat, err := w.looks().Exists(w.Context(), h.Node())
	w.must(err)
	if !h.Valid() || !there || stat.Czxid != h.Token() {
		w.Errorf("valid: %v (%v); its znode stands: %v, with czxid %d, want %d",
			h.Valid(), context.Cause(h.Context()), there, stat.Czxid, h.Token())
	}
}

// wantNothingLeft checks that no session has a znode here.
func (w *world) wantNothingLeft() {
	w.Helper()
	var left []string
	for _, root := range []string{w.path, w.innerLock()} {
		left = append(left, w.ephemerals(root)...)
	}
	w.wantList("ephemeral znodes", left)
}

// ephemerals returns those at or below a path.
func (w *world) ephemerals(path string) []string {
	w.Helper()
	names, stat, err := w.looks().Children(w.Context(), path)
	if errors.Is(err, session.ErrNoNode) {
		return nil
	}
	w.must(err)
	if stat.EphemeralOwner != 0 {
		return []string{path}
	}
	var list []string
	for _, name := range names {
		list = append(list, w.ephemerals(session.Join(path, name))...)
	}
	return list
}

// joins starts a call that makes a child, and returns the child's name when it exists.
func joins[T any](w *world, dir string, start func() *call[T]) (c *call[T], child string) {
	w.Helper()
	before := w.children(dir)
	c = start()
	w.until("another child of "+dir, func() bool {
		for _, name := range w.children(dir) {
			if !slices.Contains(before, name) {
				child = name
			}
		}
		return child != ""
	})
	return c, child
}
