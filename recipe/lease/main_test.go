package lease_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	goleak.VerifyTestMain(m)
}

const (
	path = "/app/lease"
	node = path + "/lease_holder"
)

// world has what tests of this package do.
type world struct{ *recipetest.World }

// inWorld runs a test in a bubble.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	recipetest.InWorld(t, func(w *recipetest.World) { test(&world{w}) })
}

// session runs a session that connects as the named client, until the test ends.
func (w *world) session(name string) *session.Session {
	w.Helper()
	s, _ := w.stoppable(name)
	return s
}

func (w *world) stoppable(name string) (s *session.Session, stop func()) {
	w.Helper()
	return recipetest.Stoppable(w, w.Net, name, session.Options{StopTimeout: 5 * time.Second})
}

// lease returns a handle for a minute's lease in a session of its own.
func (w *world) lease(name string) *lease.NonBlockingLease {
	w.Helper()
	return w.by(name, time.Minute)
}

// by returns a handle for a lease of that duration in a session of its own.
func (w *world) by(name string, d time.Duration) *lease.NonBlockingLease {
	w.Helper()
	return w.leaseIn(w.session(name), lease.Options{Identifier: name, Duration: d})
}

func (w *world) leaseIn(s *session.Session, opts lease.Options) *lease.NonBlockingLease {
	w.Helper()
	l, err := lease.New(s, path, opts)
	w.Must(err)
	return l
}

// obtainer is one that leases.
type obtainer interface {
	Obtain(ctx context.Context) (*lease.Held, error)
}

// anySlot obtains one of some slots.
type anySlot struct{ *lease.MultiNonBlockingLease }

func (m anySlot) Obtain(ctx context.Context) (*lease.Held, error) { return m.ObtainAny(ctx) }

func (w *world) obtain(l obtainer) *lease.Held {
	w.Helper()
	h := w.try(l)
	if h == nil {
		w.Fatal("somebody else has the lease")
	}
	return h
}

// try returns the hold, or nil when somebody else has it.
func (w *world) try(l obtainer) *lease.Held {
	w.Helper()
	h, err := l.Obtain(w.Context())
	if err != nil && !errors.Is(err, lease.ErrNotObtained) {
		w.Fatal(err)
	}
	if h != nil {
		w.Cleanup(h.Detach)
	}
	return h
}

func (w *world) release(h *lease.Held) {
	w.Helper()
	w.Check(h.Release(w.Context()))
}

// ended waits until a hold ends and checks its cause.
func (w *world) ended(h *lease.Held, want error) {
	w.Helper()
	recipetest.Ended(w, h, time.Hour, want)
}

// record returns the bytes of the lease's znode, "" when there is none.
func (w *world) record() string {
	data, _, _ := w.Srv.Get(node)
	return string(data)
}

func (w *world) wantHolder(name string) {
	w.Helper()
	if r := w.record(); name == "" && r != "" || !strings.Contains(r, fmt.Sprintf(`"holder": %q`, name)) && name != "" {
		w.Errorf("record %s, want holder %q", r, name)
	}
	for _, child := range w.Srv.Children(path) {
		if child != "lease_holder" {
			w.Errorf("left: %s", child)
		}
	}
}

// mockClock is kazoo's: it does not move.
type mockClock struct {
	mu  sync.Mutex
	now time.Time
}

func newMockClock() *mockClock { return &mockClock{now: time.Unix(10, 0)} }

func (c *mockClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *mockClock) forward(seconds int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Duration(seconds) * time.Second)
}

func is(op zktest.Op) func(zktest.Request) bool { return recipetest.Is(op) }

// isRecord matches what writes the record.
func isRecord(r zktest.Request) bool { return r.Op == zktest.OpMulti && len(r.Ops) > 1 }
