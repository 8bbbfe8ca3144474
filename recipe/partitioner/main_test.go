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
	"github.com/kielgo/kiel/recipe/lock"
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

// inWorld runs a test in a bubble.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	recipetest.InWorld(t, func(w *recipetest.World) { test(&world{w}) })
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
	w.Must(err)
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
	m.w.Must(m.Start(m.w.Context()))
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
	ctx := m.w.Within(time.Minute)
	if err := m.ReleaseSet(ctx); err != nil {
		m.w.Fatalf("%s: %v", m.Identifier(), err)
	}
}

// releaseIfItMust releases the set if the state is RELEASE.
func (m *member) releaseIfItMust() {
	m.w.Helper()
	if m.MustRelease() {
		m.releaseSet()
	}
}

// locked acquires an item's lock, as another program would.
func (w *world) locked(s *session.Session, item string) *lock.Held {
	w.Helper()
	l, err := lock.New(s, path+"/locks/"+item, lock.Options{})
	w.Must(err)
	return recipetest.Acquire(w.World, l.Acquire)
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

// left returns the contenders and the members' znodes.
func (w *world) left() []string { return append(w.contenders(), w.Srv.Children(path+"/party")...) }

// clean checks that no member and no contender is left.
func (w *world) clean() {
	w.Helper()
	if list := w.left(); len(list) != 0 {
		w.Errorf("left: %q", list)
	}
}

// loseTrust breaks the client's link until trust ends, and heals it before the session expires.
func (w *world) loseTrust(name string, inc *session.Incarnation) {
	w.Helper()
	recipetest.LoseTrust(w, w.Net.Client(name), inc)
}
