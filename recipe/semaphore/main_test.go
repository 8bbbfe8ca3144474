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

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{recipetest.NewWorld(t)}
}

// semaphore returns a handle on the test's semaphore in a session of its own.
func (w *world) semaphore(name string, leases int) *semaphore.Semaphore {
	w.Helper()
	return w.semaphoreIn(w.Session(name), name, leases)
}

func (w *world) semaphoreIn(s *session.Session, identifier string, leases int) *semaphore.Semaphore {
	w.Helper()
	sem, err := semaphore.New(s, path, semaphore.Options{Identifier: identifier, MaxLeases: leases})
	if err != nil {
		w.Fatal(err)
	}
	return sem
}

func (w *world) acquire(sem *semaphore.Semaphore) *semaphore.Held {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	h, err := sem.Acquire(ctx)
	if err != nil {
		w.Fatalf("acquire: %v", err)
	}
	recipetest.ReleaseLater(w, h)
	return h
}

// acquiring is an Acquire that goes on in the background.
type acquiring struct {
	held *semaphore.Held
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

func (w *world) acquireLater(ctx context.Context, sem *semaphore.Semaphore) *acquiring {
	a := &acquiring{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		if a.held, a.err = sem.Acquire(ctx); a.err == nil {
			recipetest.ReleaseLater(w, a.held)
		}
	}()
	return a
}

// got waits for a hold that is acquired in the background.
func (w *world) got(a *acquiring) *semaphore.Held {
	w.Helper()
	<-a.done
	if a.err != nil {
		w.Fatal(a.err)
	}
	return a.held
}

func (w *world) release(h *semaphore.Held) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	if err := h.Release(ctx); err != nil {
		w.Errorf("release: %v", err)
	}
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
	if err != nil {
		w.Fatal(err)
	}
	var names []string
	for _, h := range list {
		names = append(names, h.Identifier)
	}
	return strings.Join(names, " ")
}

// ended waits until a hold ends and checks its cause.
func (w *world) ended(h *semaphore.Held, want error) {
	w.Helper()
	recipetest.Ended(w, h, time.Minute, want)
}

func is(op zktest.Op) func(zktest.Request) bool { return recipetest.Is(op) }

// makesLease tells the transaction that makes a lease from the session's proofs of life.
func makesLease(r zktest.Request) bool { return r.Op == zktest.OpMulti && len(r.Ops) > 1 }
