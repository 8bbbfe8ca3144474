package kazoo_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/test/proxy"
	"github.com/kielgo/kiel/test/wait"
	"github.com/kielgo/kiel/zktest"
)

const (
	limit   = 2 * time.Minute  // in which whatever must happen has happened, on any machine
	timeout = 30 * time.Second // of sessions: a server that is slow to answer costs nobody his connection
	tick    = 2 * time.Second  // of servers
)

// world is where a case runs: a server, and a path on it that nobody else uses.
type world struct {
	*testing.T
	path string // no znode exists there, nor above it but the root

	connect func(name string) way
	exhaust func(path string) // uses up the numbers of a directory; nil on a real server
	admin   *client           // see looks
}

// both runs a case on zktest, in virtual time, and on a real server.
func both(t *testing.T, test func(w *world)) {
	t.Helper()
	t.Parallel()
	t.Run("zktest", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { test(newWorld(t, onVirtual)) })
	})
	t.Run("zookeeper", func(t *testing.T) {
		t.Parallel()
		test(newWorld(t, onReal))
	})
}

var cases atomic.Int64

func newWorld(t *testing.T, on func(w *world) func(name string) way) *world {
	t.Helper()
	path := fmt.Sprintf("/%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), cases.Add(1)) // a test may run again
	w := &world{T: t, path: path}
	w.connect = on(w)
	return w
}

// way is that of one client to the server.
type way struct {
	addrs  []string
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	cut    func()         // resets its connections
	shut   func()         // does so, and new ones lead nowhere
	deafen func()         // has it hear nothing any more; the server goes on hearing it, as long as it has a connection
	heal   func()         // ends both
	expire func(id int64) // ends its ZooKeeper session behind its back
}

func onVirtual(w *world) func(string) way {
	w.Helper()
	srv, nw := zktest.StartVirtual(w, zktest.Options{TickTime: tick})
	w.exhaust = func(path string) { w.must(srv.SetCreates(path, math.MaxInt32)) }
	return func(name string) way {
		c := nw.Client(name)
		return way{
			addrs:  []string{zktest.VirtualAddress},
			dial:   c.Dial,
			cut:    c.Cut,
			shut:   func() { c.Refuse(); c.Cut() },
			deafen: func() { c.BlackHole(zktest.ToClient) },
			heal:   c.Heal,
			expire: func(id int64) { srv.KillSession(id) },
		}
	}
}

func onReal(w *world) func(string) way {
	w.Helper()
	zk, err := zooKeeper()
	if err != nil {
		w.Fatal(err)
	}
	return func(string) way {
		links := proxy.To(w, zk.Addrs())
		shut := func() { // Refuse would give the port away
			links.Silence()
			links.Cut()
		}
		return way{
			addrs:  links.Addrs(),
			cut:    links.Cut,
			shut:   shut,
			deafen: func() { links.BlackHole(proxy.ToClient) },
			heal:   links.Heal,
			expire: func(id int64) {
				shut() // else the client could take its session back before it is closed
				defer links.Heal()
				s := links[0].Session()
				if s.ID != id {
					w.Fatalf("session %#x came by last, not %#x", s.ID, id)
				}
				if err := s.Close(w.Context(), zk.Addr()); err != nil {
					w.Fatal(err)
				}
			},
		}
	}
}

// client is a session with a way of its own to the server.
type client struct {
	*session.Session
	way

	w     *world
	stop  func() // ends it, as does the end of the test
	stops stops
}

// client connects; change may change the options.
func (w *world) client(name string, change ...func(*session.Options)) *client {
	w.Helper()
	c := &client{way: w.connect(name), w: w}
	opts := session.Options{Timeout: timeout, MinSessionTimeout: 2 * tick, Dial: c.stops.dialer(c.dial)}
	for _, f := range change {
		f(&opts)
	}
	var err error
	c.Session, err = session.New(c.addrs, opts)
	w.must(err)
	c.stop = recipetest.Run(w, c.Session)
	return c
}

// incarnation waits for one.
func (c *client) incarnation() *session.Incarnation {
	c.w.Helper()
	ctx, cancel := context.WithTimeout(c.w.Context(), limit)
	defer cancel()
	return must[*session.Incarnation](c.w)(c.Incarnation(ctx))
}

// expireSession is kazoo's: the session expires, and it returns when the client has another.
func (c *client) expireSession() {
	c.w.Helper()
	id := c.incarnation().SessionID()
	c.expire(id)
	c.w.until("another session", func() bool {
		now := c.Current()
		return now != nil && now.SessionID() != id
	})
}

// looks returns the incarnation of a client that only looks, and meddles.
func (w *world) looks() *session.Incarnation {
	w.Helper()
	if w.admin == nil {
		w.admin = w.client("admin")
	}
	return w.admin.incarnation()
}

// children returns the names of a znode's children, none when it is missing.
func (w *world) children(path string) []string {
	w.Helper()
	names, _, err := w.looks().Children(w.Context(), path)
	if err != nil && !errors.Is(err, session.ErrNoNode) {
		w.Fatal(err)
	}
	return names
}

// untilChildren waits until a znode has so many children.
func (w *world) untilChildren(n int, path string) {
	w.Helper()
	w.until(fmt.Sprintf("%d children of %s", n, path), func() bool { return len(w.children(path)) == n })
}

// data returns that of a znode.
func (w *world) data(path string) string {
	w.Helper()
	data, _, err := w.looks().Get(w.Context(), path)
	w.must(err)
	return string(data)
}

// meddle writes something. What may have been written is written again; done is the error which then says that it was.
func (w *world) meddle(done error, write func(inc *session.Incarnation) error) {
	w.Helper()
	for again := false; ; again = true {
		err := write(w.looks())
		if again && errors.Is(err, done) {
			return
		}
		if !errors.Is(err, session.ErrUncertain) {
			w.must(err)
			return
		}
	}
}

// create makes persistent znodes below a path, which is made too.
func (w *world) create(path string, names ...string) {
	w.Helper()
	w.meddle(nil, func(inc *session.Incarnation) error { return inc.EnsurePath(w.Context(), path) })
	for _, name := range names {
		w.meddle(session.ErrNodeExists, func(inc *session.Incarnation) error {
			_, err := inc.Create(w.Context(), session.Join(path, name), nil, session.Persistent)
			return err
		})
	}
}

// set writes a znode's data; the znode is made when it is missing.
func (w *world) set(path, data string) {
	w.Helper()
	w.create(path)
	w.meddle(nil, func(inc *session.Incarnation) error {
		_, err := inc.Set(w.Context(), path, []byte(data), -1)
		return err
	})
}

func (w *world) remove(path string) {
	w.Helper()
	w.meddle(session.ErrNoNode, func(inc *session.Incarnation) error { return inc.Delete(w.Context(), path, -1) })
}

// until waits for what must happen.
func (w *world) until(what string, ok func() bool) {
	w.Helper()
	wait.Until(w, limit, ok, func() string { return what })
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func must[T any](w *world) func(T, error) T { return recipetest.Must[T](w) }

func (w *world) want(err, want error) {
	w.Helper()
	if !errors.Is(err, want) {
		w.Errorf("got %v, want %v", err, want)
	}
}

func (w *world) wantList(what string, got []string, want ...string) {
	w.Helper()
	if !slices.Equal(got, want) {
		w.Errorf("%s are %q, want %q", what, got, want)
	}
}

// call goes on in the background.
type call[T any] struct {
	value T
	err   error
	done  chan struct{}
}

// later calls f, which must end with the test's context.
func later[T any](w *world, f func() (T, error)) *call[T] {
	c := &call[T]{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.value, c.err = f()
	}()
	w.Cleanup(func() { <-c.done })
	return c
}

func (c *call[T]) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// goOn checks that calls don't end: as far as a moment can tell, in which they could.
func (w *world) goOn(calls ...interface{ ended() bool }) {
	w.Helper()
	wait.Pass(w, 100*time.Millisecond)
	for _, c := range calls {
		if c.ended() {
			w.Errorf("the call has ended: %+v", c)
		}
	}
}

// get waits for a call that must succeed.
func (c *call[T]) get(w *world) T {
	w.Helper()
	w.until("the call's end", c.ended)
	w.must(c.err)
	return c.value
}

// fails waits for a call that must not succeed.
func (c *call[T]) fails(w *world, want error) {
	w.Helper()
	w.until("the call's end", c.ended)
	w.want(c.err, want)
}

// hold is what all kinds have in common.
type hold interface {
	Context() context.Context
	Release(ctx context.Context) error
}

// acquire waits for a hold. It is released at the end of the test, if not before.
func acquire[H hold](w *world, get func(context.Context) (H, error)) H {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), limit)
	defer cancel()
	h := must[H](w)(get(ctx))
	w.Cleanup(func() { letGo(w, h) })
	return h
}

// acquireLater has the hold acquired in the background.
func acquireLater[H hold](ctx context.Context, w *world, get func(context.Context) (H, error)) *call[H] {
	c := later(w, func() (H, error) { return get(ctx) })
	w.Cleanup(func() {
		if <-c.done; c.err == nil {
			letGo(w, c.value)
		}
	})
	return c
}

// try reports whether there is a hold at once, or the error is this.
func try[H hold](w *world, get func(context.Context) (H, error), refused error) (H, bool) {
	w.Helper()
	h, err := get(w.Context())
	if err != nil {
		w.want(err, refused)
		return h, false
	}
	w.Cleanup(func() { letGo(w, h) })
	return h, true
}

// release must succeed.
func release(w *world, h hold) {
	w.Helper()
	w.must(letGo(w, h))
	if h.Context().Err() == nil {
		w.Error("released, and held still")
	}
}

func letGo(w *world, h hold) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context()), limit)
	defer cancel()
	return h.Release(ctx)
}
