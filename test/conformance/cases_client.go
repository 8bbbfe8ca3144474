package conformance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/test/wait"
)

// client is a go-zookeeper client whose connections can be cut.
type client struct {
	*zk.Conn
	events <-chan zk.Event

	mu    sync.Mutex
	conns []net.Conn
}

func newClient(t *testing.T, srv *Server, timeout time.Duration) *client {
	t.Helper()
	c := &client{}
	conn, events, err := zk.Connect([]string{srv.Address}, timeout, zk.WithLogger(silence{}), zk.WithHostProvider(&host{address: srv.Address}),
		zk.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			nc, err := srv.Dial(ctx, network, address)
			if err == nil {
				c.mu.Lock()
				c.conns = append(c.conns, nc)
				c.mu.Unlock()
			}
			return nc, err
		}))
	must(t, err)
	c.Conn, c.events = conn, events
	t.Cleanup(func() {
		conn.Close()
		for range events { // it closes when the client has ended
		}
	})
	c.wait(t, zk.StateHasSession)
	return c
}

// wait waits for a state.
func (c *client) wait(t *testing.T, state zk.State) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case ev := <-c.events:
			if ev.State == state && ev.Type == zk.EventSession {
				return
			}
		case <-timer.C:
			t.Fatalf("never came to state %v", state)
		}
	}
}

// cut closes the connections under the client's feet.
func (c *client) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, nc := range c.conns {
		_ = nc.Close()
	}
}

type silence struct{}

func (silence) Printf(string, ...any) {}

// host is a host provider without DNS: the first dial is at once, the next ones each a second later.
type host struct {
	address string
	again   bool
}

func (h *host) Init([]string) error { return nil }
func (h *host) Len() int            { return 1 }
func (h *host) Connected()          { h.again = false }

func (h *host) Next() (string, bool) {
	again := h.again
	h.again = true
	return h.address, again
}

func expectEvent(t *testing.T, ch <-chan zk.Event, kind zk.EventType, path string) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case ev := <-ch:
		if ev.Type != kind || ev.Path != path || ev.Err != nil {
			t.Errorf("event %+v, want %v on %s", ev, kind, path)
		}
	case <-timer.C:
		t.Errorf("no event on %s", path)
	}
}

func caseClient(t *testing.T, _ Target, srv *Server) {
	c := newClient(t, srv, 20*TickTime)
	all := zk.WorldACL(zk.PermAll)
	_, err := c.Create("/client", []byte("x"), 0, all)
	must(t, err)
	if _, err := c.Create("/client", nil, 0, all); !errors.Is(err, zk.ErrNodeExists) {
		t.Error(err)
	}
	_, err = c.CreateContainer("/client/container", nil, zk.FlagTTL-1, all)
	must(t, err)
	if _, err := c.CreateTTL("/client/ttl", nil, zk.FlagTTL, all, time.Hour); err == nil {
		t.Error("a TTL znode was made")
	}
	p, err := c.CreateProtectedEphemeralSequential("/client/p-", []byte("1"), all)
	must(t, err)
	if _, stat, err := c.Get(p); err != nil || stat.EphemeralOwner != c.SessionID() {
		t.Error(stat, err)
	}
	_, _, children, err := c.ChildrenW("/client")
	must(t, err)
	exists, _, made, err := c.ExistsW("/client/later")
	if exists || err != nil {
		t.Error(exists, err)
	}
	_, _, data, err := c.GetW("/client")
	must(t, err)
	results, err := c.Multi(
		&zk.CreateRequest{Path: "/client/later", Acl: all}, &zk.SetDataRequest{Path: "/client", Data: []byte("y"), Version: 0},
		&zk.CheckVersionRequest{Path: "/client", Version: 1}, &zk.DeleteRequest{Path: p, Version: 0})
	if err != nil || len(results) != 4 || results[0].String != "/client/later" || results[1].Stat.Version != 1 {
		t.Errorf("%+v %v", results, err)
	}
	expectEvent(t, children, zk.EventNodeChildrenChanged, "/client")
	expectEvent(t, made, zk.EventNodeCreated, "/client/later")
	expectEvent(t, data, zk.EventNodeDataChanged, "/client")
	if _, err := c.Multi(&zk.CheckVersionRequest{Path: "/client", Version: 9}); !errors.Is(err, zk.ErrBadVersion) {
		t.Error(err)
	}
	must(t, c.AddAuth("digest", []byte("u:p")))
	_, err = c.Create("/client/private", nil, 0, zk.AuthACL(zk.PermAll))
	must(t, err)
	acls, _, err := c.GetACL("/client/private")
	if want := zk.DigestACL(zk.PermAll, "u", "p"); err != nil || !slices.Equal(acls, want) {
		t.Error(acls, err)
	}
	_, err = c.SetACL("/client/private", zk.DigestACL(zk.PermAll, "u", "p"), 0)
	must(t, err)
	if _, _, err := newClient(t, srv, 20*TickTime).Get("/client/private"); !errors.Is(err, zk.ErrNoAuth) {
		t.Error(err)
	}
	if path, err := c.Sync("/client"); err != nil || path != "/client" {
		t.Error(path, err)
	}
}

// caseClientReconnect: the same session goes on, and watches tell what was missed.
func caseClientReconnect(t *testing.T, _ Target, srv *Server) {
	c, other := newClient(t, srv, 20*TickTime), newClient(t, srv, 20*TickTime)
	all := zk.WorldACL(zk.PermAll)
	must(t, c.AddAuth("digest", []byte("u:p")))
	for _, path := range []string{"/reconnect", "/reconnect/data", "/reconnect/gone"} {
		_, err := c.Create(path, nil, 0, all)
		must(t, err)
	}
	_, err := c.Create("/reconnect/mine", nil, zk.FlagEphemeral, zk.AuthACL(zk.PermAll))
	must(t, err)
	_, _, data, err := c.GetW("/reconnect/data")
	must(t, err)
	_, _, gone, err := c.GetW("/reconnect/gone")
	must(t, err)
	_, _, still, err := c.GetW("/reconnect/mine")
	must(t, err)
	_, _, made, err := c.ExistsW("/reconnect/made")
	must(t, err)
	_, _, children, err := c.ChildrenW("/reconnect")
	must(t, err)
	session := c.SessionID()
	c.cut()
	_, err = other.Set("/reconnect/data", []byte("x"), -1)
	must(t, err)
	must(t, other.Delete("/reconnect/gone", -1))
	_, err = other.Create("/reconnect/made", nil, 0, all)
	must(t, err)
	expectEvent(t, data, zk.EventNodeDataChanged, "/reconnect/data")
	expectEvent(t, gone, zk.EventNodeDeleted, "/reconnect/gone")
	expectEvent(t, made, zk.EventNodeCreated, "/reconnect/made")
	expectEvent(t, children, zk.EventNodeChildrenChanged, "/reconnect")
	if c.SessionID() != session {
		t.Errorf("session %#x became %#x", session, c.SessionID())
	}
	_, err = c.Set("/reconnect/mine", []byte("still mine"), 0)
	must(t, err)
	expectEvent(t, still, zk.EventNodeDataChanged, "/reconnect/mine")
}

// caseClientExpired: a client that comes back too late gets a new session.
func caseClientExpired(t *testing.T, _ Target, srv *Server) {
	var mu sync.Mutex
	cutOff := false
	lossy := *srv
	lossy.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		if cutOff {
			return nil, errors.New("cut off")
		}
		return srv.Dial(ctx, network, address)
	}
	set := func(v bool) {
		mu.Lock()
		defer mu.Unlock()
		cutOff = v
	}
	c, other := newClient(t, &lossy, 8*TickTime), newClient(t, srv, 20*TickTime)
	_, err := c.Create("/expired", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	must(t, err)
	_, _, gone, err := other.ExistsW("/expired")
	must(t, err)
	session := c.SessionID()
	set(true)
	c.cut()
	expectEvent(t, gone, zk.EventNodeDeleted, "/expired")
	set(false)
	c.wait(t, zk.StateExpired)
	c.wait(t, zk.StateHasSession)
	if c.SessionID() == session || c.SessionID() == 0 {
		t.Errorf("session %#x after %#x", c.SessionID(), session)
	}
}

// caseClientLock: go-zookeeper's own lock recipe excludes and hands over.
func caseClientLock(t *testing.T, _ Target, srv *Server) {
	a, b := newClient(t, srv, 20*TickTime), newClient(t, srv, 20*TickTime)
	la, lb := zk.NewLock(a.Conn, "/lock", zk.WorldACL(zk.PermAll)), zk.NewLock(b.Conn, "/lock", zk.WorldACL(zk.PermAll))
	must(t, la.Lock())
	var released time.Time
	got := make(chan error, 1)
	go func() { got <- lb.Lock() }()
	var waiting []string
	wait.Until(t, patience, func() bool {
		var err error
		waiting, _, err = a.Children("/lock")
		must(t, err)
		return len(waiting) == 2
	}, func() string { return fmt.Sprintf("both are in the line: %q", waiting) })
	wait.Pass(t, TickTime) // in which the second could get it
	select {
	case err := <-got:
		t.Fatal("two holders", err)
	default:
		released = time.Now()
	}
	must(t, la.Unlock())
	must(t, <-got)
	if d := time.Since(released); d > patience {
		t.Error(d)
	}
	must(t, lb.Unlock())
}
