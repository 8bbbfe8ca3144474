package semaphore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/semaphore"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	goleak.VerifyTestMain(m)
}

const (
	path    = "/app/sem"
	lockDir = "/app/sem-__lock__"
)

// world has what tests of this package do.
type world struct{ *recipetest.World }

// inWorld runs a test in a bubble.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	recipetest.InWorld(t, func(w *recipetest.World) { test(&world{w}) })
}

// semaphore returns a handle on the test's semaphore in a session of its own.
func (w *world) semaphore(name string, leases int) *semaphore.Semaphore {
	w.Helper()
	return w.semaphoreIn(w.Session(name), name, leases)
}

func (w *world) semaphoreIn(s *session.Session, identifier string, leases int) *semaphore.Semaphore {
	w.Helper()
	sem, err := semaphore.New(s, path, semaphore.Options{Identifier: identifier, MaxLeases: leases})
	w.Must(err)
	return sem
}

func (w *world) acquire(sem *semaphore.Semaphore) *semaphore.Held {
	w.Helper()
	return recipetest.Acquire(w.World, sem.Acquire)
}

// acquiring is an Acquire that goes on in the background.
type acquiring = recipetest.Call[*semaphore.Held]

func (w *world) acquireLater(ctx context.Context, sem *semaphore.Semaphore) *acquiring {
	return recipetest.AcquireLater(ctx, w, sem.Acquire)
}

// waiter has another client wait for a lease.
func (w *world) waiter(name string, leases int) *acquiring {
	w.Helper()
	a := w.acquireLater(w.Context(), w.semaphore(name, leases))
	time.Sleep(time.Second)
	return a
}

// wantZnodes checks how many leases and how many contenders of the inner lock there are.
func (w *world) wantZnodes(leases, contenders int) {
	w.Helper()
	if list := w.Srv.Children(path); len(list) != leases {
		w.Errorf("%d leases, want %d: %q", len(list), leases, list)
	}
	if list := w.Srv.Children(lockDir); len(list) != contenders {
		w.Errorf("%d contenders, want %d: %q", len(list), contenders, list)
	}
}

// holders returns the identifiers of the lease holders.
func (w *world) holders(sem *semaphore.Semaphore) string {
	w.Helper()
	list, err := sem.LeaseHolders(w.Context())
	w.Must(err)
	var names []string
	for _, h := range list {
		names = append(names, h.Identifier)
	}
	return strings.Join(names, " ")
}

func is(op zktest.Op) func(zktest.Request) bool { return recipetest.Is(op) }

// makesLease tells the transaction that makes a lease from the session's proofs of life.
func makesLease(r zktest.Request) bool { return r.Op == zktest.OpMulti && len(r.Ops) > 1 }
