package lock_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	goleak.VerifyTestMain(m)
}

const path = "/app/lock"

// world has what tests of this package do.
type world struct{ *recipetest.World }

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{recipetest.NewWorld(t)}
}

// inSession runs a test in a bubble.
func inSession(t *testing.T, test func(w *world, s *session.Session)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		test(w, w.Session("client"))
	})
}

// run runs a session and returns how to end it.
func (w *world) run(s *session.Session) (stop func()) {
	w.Helper()
	return recipetest.Run(w, s)
}

// lock returns a handle on the test's lock in a session of its own.
func (w *world) lock(name string) *lock.Lock {
	w.Helper()
	return w.lockIn(w.Session(name), name)
}

func (w *world) lockIn(s *session.Session, identifier string) *lock.Lock {
	w.Helper()
	l, err := lock.New(s, path, lock.Options{Identifier: identifier})
	if err != nil {
		w.Fatal(err)
	}
	return l
}

type newLock = func(*session.Session, string, lock.Options) (*lock.Lock, error)

func (w *world) make(create newLock, s *session.Session, opts lock.Options) *lock.Lock {
	w.Helper()
	l, err := create(s, path, opts)
	if err != nil {
		w.Fatal(err)
	}
	return l
}

// try returns the hold, or nil when others are in front.
func (w *world) try(l *lock.Lock) *lock.Held {
	w.Helper()
	h, err := l.TryAcquire(w.Context())
	if err != nil && !errors.Is(err, lock.ErrNotAcquired) {
		w.Fatal(err)
	}
	if h != nil {
		recipetest.ReleaseLater(w, h)
	}
	return h
}

func (w *world) acquire(l *lock.Lock) *lock.Held {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	h, err := l.Acquire(ctx)
	if err != nil {
		w.Fatalf("acquire: %v", err)
	}
	recipetest.ReleaseLater(w, h)
	return h
}

// acquiring is an Acquire that goes on in the background.
type acquiring struct {
	held *lock.Held
	err  error
	done chan struct{}
}

func (a *acquiring) ended() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

func (w *world) acquireLater(ctx context.Context, l *lock.Lock) *acquiring {
	a := &acquiring{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		if a.held, a.err = l.Acquire(ctx); a.err == nil {
			recipetest.ReleaseLater(w, a.held)
		}
	}()
	return a
}

// got waits for a hold that is acquired in the background.
func (w *world) got(a *acquiring) *lock.Held {
	w.Helper()
	<-a.done
	if a.err != nil {
		w.Fatal(a.err)
	}
	return a.held
}

func (w *world) release(h *lock.Held) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	if err := h.Release(ctx); err != nil {
		w.Errorf("release: %v", err)
	}
}

var contender = regexp.MustCompile(`^[0-9a-f]{32}__lock__\d{10}$`)

// contenders returns the children that are contenders, in their order.
func (w *world) contenders() []string {
	var list []string
	for _, name := range w.Srv.Children(path) {
		if strings.Contains(name, "__lock__") {
			list = append(list, name)
		}
	}
	slices.SortFunc(list, func(a, b string) int { return strings.Compare(a[len(a)-10:], b[len(b)-10:]) })
	return list
}

func (w *world) wantContenders(n int) []string {
	w.Helper()
	list := w.contenders()
	if len(list) != n {
		w.Errorf("%d contenders, want %d: %q", len(list), n, list)
	}
	return list
}

// ended waits until a hold ends and checks its cause.
func (w *world) ended(h *lock.Held, want error) {
	w.Helper()
	recipetest.Ended(w, h, time.Minute, want)
}

func is(op zktest.Op) func(zktest.Request) bool { return recipetest.Is(op) }
