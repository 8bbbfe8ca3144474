package party_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/defaultlog/logtest"
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

// tb is what tests, and properties in bubbles, have in common.
type tb interface {
	zktest.TB
	Errorf(format string, args ...any)
	Context() context.Context
}

// cluster is a server and those who use it, in a bubble.
type cluster struct {
	tb
	srv *zktest.Server
	net *zktest.Network
}

func newCluster(t tb) *cluster {
	t.Helper()
	srv, network := zktest.StartVirtual(t, zktest.Options{TickTime: tick})
	return &cluster{tb: t, srv: srv, net: network}
}

// session runs a session as the network's client of that name until the test
// ends, or the returned function is called.
func (c *cluster) session(client string) (*session.Session, func()) {
	c.Helper()
	return c.sessionWith(client, session.Options{})
}

func (c *cluster) sessionWith(client string, opts session.Options) (*session.Session, func()) {
	c.Helper()
	opts.Timeout, opts.Dial = cmp.Or(opts.Timeout, timeout), c.net.Client(client).Dial
	s, err := session.New([]string{zktest.VirtualAddress}, opts)
	if err != nil {
		c.Fatalf("session: %v", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx); err != nil {
			c.Errorf("session %s: %v", client, err)
		}
	}()
	stop := func() { cancel(); <-done }
	c.Cleanup(stop)
	return s, stop
}

// member is a Party that runs.
type member struct {
	*party.Party
	c       *cluster
	session *session.Session
	cancel  context.CancelFunc
	err     error
	done    chan struct{}
}

// join runs a party on a session of its own, whose client bears its name.
func (c *cluster) join(name string) *member {
	c.Helper()
	s, _ := c.session(name)
	return c.run(s, party.Options{Name: name, Data: []byte("record of " + name)})
}

// secondOf has two members join under one name. It returns the second, which waits.
func (c *cluster) secondOf(name string) *member {
	c.Helper()
	c.join(name).joined()
	s, _ := c.session("second")
	m := c.run(s, party.Options{Name: name})
	m.awaitNames(time.Second, name)
	return m
}

// observe runs an observer.
func (c *cluster) observe() *member {
	c.Helper()
	s, _ := c.session("observer")
	return c.run(s, party.Options{})
}

func (c *cluster) run(s *session.Session, opts party.Options) *member {
	c.Helper()
	p, err := party.New(s, directory, opts)
	if err != nil {
		c.Fatalf("party: %v", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.Context()))
	m := &member{Party: p, c: c, session: s, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		m.err = p.Run(ctx)
	}()
	c.Cleanup(func() { cancel(); <-m.done })
	return m
}

// stop ends Run and returns what it returned.
func (m *member) stop() error {
	m.cancel()
	<-m.done
	return m.err
}

// await returns the first view that is as wanted, and how long it took. It
// fails after limit.
func (m *member) await(limit time.Duration, what string, wanted func(*party.View) bool) (*party.View, time.Duration) {
	m.c.Helper()
	ctx, cancel := context.WithTimeout(m.c.Context(), limit)
	defer cancel()
	start := time.Now()
	for view := range m.Updates(ctx) {
		if wanted(view) {
			return view, time.Since(start)
		}
	}
	m.c.Fatalf("%s: no view of %s within %v; the last is %s, Run's error %v", m.Name(), what, limit, show(m.View()), m.err)
	return nil, 0
}

// awaitNames waits for these members.
func (m *member) awaitNames(limit time.Duration, want ...string) (*party.View, time.Duration) {
	m.c.Helper()
	slices.Sort(want)
	return m.await(limit, fmt.Sprint(want), func(v *party.View) bool { return slices.Equal(names(v), want) })
}

// joined waits until the member has joined and returns its znode's czxid.
func (m *member) joined() int64 {
	m.c.Helper()
	v, _ := m.await(5*time.Second, "itself", func(v *party.View) bool { return v.Joined })
	own, ok := v.Member(m.Name())
	if !ok {
		m.c.Fatalf("%s: joined, but not in %s", m.Name(), show(v))
	}
	return own.Czxid
}

// node returns the path of a member's znode.
func node(name string) string { return directory + "/" + name }

// stands says whether there is a znode of that name, and whose.
func (c *cluster) stands(name string) (zktest.Stat, bool) {
	_, stat, ok := c.srv.Get(node(name))
	return stat, ok
}

// unhook ends the hook; what it has noted may be read then.
func (c *cluster) unhook() {
	c.srv.SetHook(nil)
	synctest.Wait()
}

func (c *cluster) sessionOf(client string) int64 {
	c.Helper()
	for _, info := range c.srv.Sessions() {
		if info.Client == client {
			return info.ID
		}
	}
	c.Fatalf("no session of %s", client)
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
func incarnation(c *cluster, s *session.Session) *session.Incarnation {
	c.Helper()
	inc, err := s.Incarnation(c.Context())
	if err != nil {
		c.Fatalf("incarnation: %v", err)
	}
	return inc
}

// namesake does what a Python member of that name does on joining: it puts its
// own znode in the place of the one that is there.
func (c *cluster) namesake(name string) (*session.Session, func()) {
	c.Helper()
	s, stop := c.session("namesake of " + name)
	inc := incarnation(c, s)
	if _, err := inc.Multi(c.Context(), session.DeleteOp(node(name), -1), session.CreateOp(node(name), nil, session.Ephemeral)); err != nil {
		c.Fatalf("namesake: %v", err)
	}
	return s, stop
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

func logger(t *testing.T) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}
