package lock_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
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

// inWorld runs a test in a bubble.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	recipetest.InWorld(t, func(w *recipetest.World) { test(&world{w}) })
}

// inSession runs a test in a bubble.
func inSession(t *testing.T, test func(w *world, s *session.Session)) {
	t.Helper()
	inWorld(t, func(w *world) {
		test(w, w.Session("client"))
	})
}

// lock returns a handle on the test's lock in a session of its own.
func (w *world) lock(name string) *lock.Lock {
	w.Helper()
	return w.lockIn(w.Session(name), name)
}

func (w *world) lockIn(s *session.Session, identifier string) *lock.Lock {
	w.Helper()
	return w.make(lock.New, s, lock.Options{Identifier: identifier})
}

type newLock = func(*session.Session, string, lock.Options) (*lock.Lock, error)

func (w *world) make(create newLock, s *session.Session, opts lock.Options) *lock.Lock {
	w.Helper()
	l, err := create(s, path, opts)
	w.Must(err)
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
	return recipetest.Acquire(w.World, l.Acquire)
}

// acquiring is an Acquire that goes on in the background.
type acquiring = recipetest.Call[*lock.Held]

func (w *world) acquireLater(ctx context.Context, l *lock.Lock) *acquiring {
	return recipetest.AcquireLater(ctx, w, l.Acquire)
}

// waiter has another client wait for the lock.
func (w *world) waiter(name string) *acquiring {
	w.Helper()
	return w.waiterOf(w.lock(name))
}

func (w *world) waiterOf(l *lock.Lock) *acquiring {
	w.Helper()
	a := w.acquireLater(w.Context(), l)
	time.Sleep(time.Second)
	return a
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

func is(op zktest.Op) func(zktest.Request) bool { return recipetest.Is(op) }
