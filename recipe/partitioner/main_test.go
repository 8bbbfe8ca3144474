package partitioner_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/session"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	goleak.VerifyTestMain(m)
}

const (
	path     = "/app/set"
	boundary = 200 * time.Millisecond
)

// world has the helpers of this package's tests.
type world struct{ *recipetest.World }

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{recipetest.NewWorld(t)}
}

func (w *world) sessionWith(name string) (*session.Session, func()) {
	w.Helper()
	return recipetest.Stoppable(w, w.Net, name, session.Options{})
}

// member is a partitioner in a session of its own; the network's client has the identifier's name.
type member struct {
	*partitioner.SetPartitioner
	w       *world
	session *session.Session
}

// member returns a member that was not started.
func (w *world) member(name string, items []string, opts partitioner.Options) *member {
	w.Helper()
	return w.memberIn(w.Session(name), name, items, opts)
}

func (w *world) memberIn(s *session.Session, name string, items []string, opts partitioner.Options) *member {
	w.Helper()
	opts.Identifier = name
	if opts.TimeBoundary == 0 {
		opts.TimeBoundary = boundary
	}
	p, err := partitioner.New(s, path, items, opts)
	if err != nil {
		w.Fatal(err)
	}
	return &member{SetPartitioner: p, w: w, session: s}
}

// join returns a member that was started.
func (w *world) join(name string, items ...string) *member {
	w.Helper()
	m := w.member(name, items, partitioner.Options{})
	m.start()
	return m
}

func (m *member) start() {
	m.w.Helper()
	if err := m.Start(m.w.Context()); err != nil {
		m.w.Fatal(err)
	}
	m.w.Cleanup(m.finish)
}

func (m *member) finish() {
	m.w.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.w.Context()), time.Minute)
	defer cancel()
	if err := m.Finish(ctx); err != nil {
		m.w.Errorf("finish: %v", err)
	}
}

func (m *member) releaseSet() {
	m.w.Helper()
	ctx, cancel := context.WithTimeout(m.w.Context(), time.Minute)
	defer cancel()
	if err := m.ReleaseSet(ctx); err != nil {
		m.w.Fatalf("%s: %v", m.Identifier(), err)
	}
}

// wait waits until the state is as wanted.
func (m *member) wait(want partitioner.State) {
	m.w.Helper()
	limit := time.After(time.Minute)
	for {
		now := m.Snapshot()
		if now.State == want {
			return
		}
		select {
		case <-now.Changed():
		case <-limit:
			m.w.Fatalf("%s: state %v (%v), want %v\n%s", m.Identifier(), now.State, now.Err, want, m.w.Srv.Dump())
		}
	}
}

// wantItems waits until the member has acquired exactly these.
func (m *member) wantItems(items ...string) {
	m.w.Helper()
	m.wait(partitioner.Acquired)
	if got := m.Items(); !slices.Equal(got, items) {
		m.w.Fatalf("%s has %q, want %q", m.Identifier(), got, items)
	}
}

// failed waits for FAILURE and checks its reason.
func (m *member) failed(want error) {
	m.w.Helper()
	m.wait(partitioner.Failure)
	if err := m.Snapshot().Err; !errors.Is(err, want) {
		m.w.Errorf("%s failed with %v, want %v", m.Identifier(), err, want)
	}
}

// contenders returns the contenders for locks, as lines of the server's dump.
func (w *world) contenders() []string {
	var list []string
	for line := range strings.Lines(w.Srv.Dump()) {
		if strings.Contains(line, "__lock__0") {
			list = append(list, line)
		}
	}
	return list
}

// clean checks that no member and no contender is left.
func (w *world) clean() {
	w.Helper()
	if list := append(w.contenders(), w.Srv.Children(path+"/party")...); len(list) != 0 {
		w.Errorf("left: %q", list)
	}
}

// kill ends a member's ZooKeeper session.
func (w *world) kill(s *session.Session) {
	w.Helper()
	w.Srv.KillSession(recipetest.ID(w, s))
}

// loseTrust breaks the client's link until trust ends, and heals it before the session expires.
func (w *world) loseTrust(name string, inc *session.Incarnation) {
	w.Helper()
	recipetest.LoseTrust(w, w.Net.Client(name), inc)
}
