package party_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	gopath "path"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	goleak.VerifyTestMain(m)
}

const (
	directory = "/kiel/groups/g/members"
	timeout   = 6 * time.Second
	tick      = 2 * time.Second
)

// world has what tests of parties do.
type world struct{ *recipetest.World }

// inWorld runs a test in a bubble, with a world of its own.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	recipetest.InWorld(t, func(w *recipetest.World) { test(&world{w}) })
}

// session runs a session as the network's client of that name until the test ends.
func (w *world) session(client string) *session.Session {
	w.Helper()
	s, _ := w.stoppable(client, session.Options{})
	return s
}

// stoppable is session with options, until the returned function is called.
func (w *world) stoppable(client string, opts session.Options) (*session.Session, func()) {
	w.Helper()
	opts.Timeout = cmp.Or(opts.Timeout, timeout)
	return recipetest.Stoppable(w, w.Net, client, opts)
}

// member is a Party that runs.
type member struct {
	*party.Party
	w          *world
	session    *session.Session
	endSession func() // of those that join has made
	cancel     context.CancelFunc
	err        error
	done       chan struct{}
}

// join runs a party on a session of its own, whose client bears its name.
func (w *world) join(name string) *member {
	w.Helper()
	s, end := w.stoppable(name, session.Options{})
	m := w.run(s, party.Options{Name: name, Data: []byte("record of " + name)})
	m.endSession = end
	return m
}

// member returns a party that has joined.
func (w *world) member(name string) *member {
	w.Helper()
	m := w.join(name)
	m.joined()
	return m
}

// second has another join under a name.
func (w *world) second(name string) *member {
	w.Helper()
	return w.run(w.session("second"), party.Options{Name: name, Logger: logger(w)})
}

// secondOf has two members join under one name. It returns the second, which waits.
func (w *world) secondOf(name string) *member {
	w.Helper()
	w.member(name)
	m := w.second(name)
	m.awaitNames(time.Second, name)
	return m
}

// observe runs an observer.
func (w *world) observe() *member {
	w.Helper()
	return w.run(w.session("observer"), party.Options{})
}

func (w *world) run(s *session.Session, opts party.Options) *member {
	w.Helper()
	p, err := party.New(s, directory, opts)
	noerr.Must(w, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	m := &member{Party: p, w: w, session: s, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		m.err = p.Run(ctx)
	}()
	w.Cleanup(func() { cancel(); <-m.done })
	return m
}

// calm waits for long, and checks that no new view comes.
func (m *member) calm() {
	m.w.Helper()
	before := m.View()
	time.Sleep(10 * timeout)
	if v := m.View(); v.Version != before.Version {
		m.w.Errorf("in calm %s became %s", show(before), show(v))
	}
}

// stop ends Run and returns what it returned.
func (m *member) stop() error {
	m.cancel()
	<-m.done
	return m.err
}

// await returns the first view that is as wanted, and how long it took. It fails after limit.
func (m *member) await(limit time.Duration, what string, wanted func(*party.View) bool) (*party.View, time.Duration) {
	m.w.Helper()
	ctx, cancel := context.WithTimeout(m.w.Context(), limit)
	defer cancel()
	start := time.Now()
	for view := range m.Updates(ctx) {
		if wanted(view) {
			return view, time.Since(start)
		}
	}
	m.w.Fatalf("%s: no view of %s within %v; the last is %s, Run's error %v", m.Name(), what, limit, show(m.View()), m.err)
	return nil, 0
}

// awaitNames waits for these members.
func (m *member) awaitNames(limit time.Duration, want ...string) (*party.View, time.Duration) {
	m.w.Helper()
	slices.Sort(want)
	return m.await(limit, fmt.Sprint(want), func(v *party.View) bool { return slices.Equal(names(v), want) })
}

// joined waits until the member has joined and returns its znode's czxid.
func (m *member) joined() int64 {
	m.w.Helper()
	v, _ := m.await(5*time.Second, "itself", func(v *party.View) bool { return v.Joined })
	own, ok := v.Member(m.Name())
	if !ok {
		m.w.Fatalf("%s: joined, but not in %s", m.Name(), show(v))
	}
	return own.Czxid
}

// node returns the path of a member's znode.
func node(name string) string { return directory + "/" + name }

// stands reports whether there is a znode of that name, and whose.
func (w *world) stands(name string) (zktest.Stat, bool) {
	_, stat, ok := w.Srv.Get(node(name))
	return stat, ok
}

// wantGone checks that no znode of that name exists.
func (w *world) wantGone(name string) {
	w.Helper()
	if stat, ok := w.stands(name); ok {
		w.Errorf("the znode %s stands: %+v", name, stat)
	}
}

// create creates members' znodes m00, m01 and so on, which are no party's.
func (w *world) create(n int, data string) {
	w.Helper()
	for i := range n {
		must(w, w.Srv.Create(node(fmt.Sprintf("m%02d", i)), []byte(data)))
	}
}

// unhook ends the hook; what it has noted may be read then.
func (w *world) unhook() {
	w.Srv.SetHook(nil)
	synctest.Wait()
}

func (w *world) sessionOf(client string) int64 {
	w.Helper()
	for _, info := range w.Srv.Sessions() {
		if info.Client == client {
			return info.ID
		}
	}
	w.Fatalf("no session of %s", client)
	return 0
}

func names(v *party.View) []string {
	var names []string
	for _, m := range v.Members {
		names = append(names, m.Name)
	}
	return names
}

func show(v *party.View) string {
	if v == nil {
		return "none"
	}
	return fmt.Sprintf("version %d joined=%v %q", v.Version, v.Joined, names(v))
}

// incarnation returns a trusted incarnation for a test's own requests.
func incarnation(w *world, s *session.Session) *session.Incarnation {
	w.Helper()
	inc, err := s.Incarnation(w.Context())
	noerr.Must(w, err)
	return inc
}

// hold has a session of its own create an ephemeral znode, which exists until the returned function is called.
func (w *world) hold(client, path, data string) (end func()) {
	w.Helper()
	s, end := w.stoppable(client, session.Options{})
	inc := incarnation(w, s)
	must(w, inc.EnsurePath(w.Context(), gopath.Dir(path)))
	_, err := inc.Create(w.Context(), path, []byte(data), session.Ephemeral)
	must(w, err)
	return end
}

// namesake does what a Python member of that name does on joining: it puts its own znode in the place of the one that is there.
func (w *world) namesake(name string) (*session.Session, func()) {
	w.Helper()
	s, stop := w.stoppable("namesake of "+name, session.Options{})
	inc := incarnation(w, s)
	noerr.Last(w)(inc.Multi(w.Context(), session.DeleteOp(node(name), -1), session.CreateOp(node(name), nil, session.Ephemeral)))
	return s, stop
}

func must(tb testing.TB, err error) {
	tb.Helper()
	noerr.Must(tb, err)
}

func wantErr(tb testing.TB, err, want error) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Fatalf("got %v, want %v", err, want)
	}
}

func logger(tb testing.TB) *slog.Logger {
	tb.Helper()
	return slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}
