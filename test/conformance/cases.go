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
	"github.com/kielgo/kiel/zktest"
)

type testCase struct {
	name string
	run  func(t *testing.T, target Target, srv *Server)
}

// cases are what a script can't tell: times, restarts, sizes, and a user's client.
func cases() []testCase {
	return []testCase{
		{"timeout-clamped", caseTimeoutClamped},
		{"expiry", caseExpiry},
		{"expiry-put-off", caseExpiryPutOff},
		{"restart", caseRestart},
		{"packet-limit", casePacketLimit},
		{"pipelining", casePipelining},
		{"event-zxid", caseEventZxid},
		{"client", caseClient},
		{"client-reconnect", caseClientReconnect},
		{"client-expired", caseClientExpired},
		{"client-lock", caseClientLock},
	}
}

// must ends the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func connect(t *testing.T, srv *Server, h hello) *wire {
	t.Helper()
	w, err := srv.connect(h)
	must(t, err)
	t.Cleanup(func() { _ = w.nc.Close() })
	return w
}

// do sends a request that must be answered, and returns the error code in the answer.
func do(t *testing.T, w *wire, op zktest.Op, e *encoder) zktest.Error {
	t.Helper()
	r, err := w.call(op, e.b)
	must(t, err)
	return r.err
}

func bodyCreate(path string, flags int32) *encoder {
	return new(encoder).string(path).bytes(nil).acls(open).int32(flags)
}

func bodyPath(path string) *encoder { return new(encoder).string(path).bool(false) }

func caseTimeoutClamped(t *testing.T, _ Target, srv *Server) {
	for asked, want := range map[time.Duration]time.Duration{
		0: 2 * TickTime, time.Millisecond: 2 * TickTime, -time.Second: 2 * TickTime, 2 * TickTime: 2 * TickTime,
		777 * time.Millisecond: 777 * time.Millisecond, 20 * TickTime: 20 * TickTime, time.Hour: 20 * TickTime,
	} {
		w := connect(t, srv, hello{timeout: asked})
		if w.timeout != want {
			t.Errorf("asked for %v: granted %v, want %v", asked, w.timeout, want)
		}
		// Another timeout can be had with each connect request.
		again := connect(t, srv, hello{timeout: 1234 * time.Millisecond, session: w.session, password: w.password})
		if again.session != w.session || again.timeout != 1234*time.Millisecond {
			t.Errorf("attached again: %#x of %#x, timeout %v", again.session, w.session, again.timeout)
		}
		must(t, asError(do(t, again, zktest.OpCloseSession, new(encoder))))
	}
}

// slack is how late a real server may be.
func (target Target) slack() time.Duration {
	if target.Bubble {
		return 0
	}
	return 2 * time.Second
}

// caseExpiry: a session of timeout T that falls silent ends between T and T plus one tick after its last packet, and so do
// its ephemerals, for others to see.
func caseExpiry(t *testing.T, target Target, srv *Server) {
	const timeout = 6 * TickTime
	watcher := connect(t, srv, hello{timeout: 20 * TickTime})
	silent := connect(t, srv, hello{timeout: timeout})
	must(t, asError(do(t, silent, zktest.OpCreate, bodyCreate("/expiry", 1))))
	wait.Pass(t, TickTime/3) // so that the ping counts, and not the create
	last := time.Now()
	must(t, asError(do(t, silent, zktest.OpPing, new(encoder))))
	heard := time.Now()
	must(t, asError(do(t, watcher, zktest.OpExists, new(encoder).string("/expiry").bool(true))))
	if _, err := watcher.readFrame(); err != nil { // the event
		t.Fatal(err)
	}
	after := time.Since(heard)
	if after+heard.Sub(last) < timeout || after > timeout+TickTime+target.slack() {
		t.Errorf("expired %v after its last packet, want %v to %v", after, timeout, timeout+TickTime)
	}
	if !silent.closed() {
		t.Error("the connection of the expired session is open")
	}
	late := connect(t, srv, hello{timeout: timeout, session: silent.session, password: silent.password})
	if late.session != 0 || late.timeout != 0 || slices.Max(late.password) != 0 {
		t.Errorf("an expired session came back: %#x, timeout %v, password %x", late.session, late.timeout, late.password)
	}
}

func asError(code zktest.Error) error {
	if code == 0 {
		return nil
	}
	return code
}

// caseExpiryPutOff: any request keeps a session alive, not only pings.
func caseExpiryPutOff(t *testing.T, _ Target, srv *Server) {
	w := connect(t, srv, hello{timeout: 10 * TickTime})
	ops := []struct {
		op   zktest.Op
		body *encoder
	}{
		{zktest.OpExists, bodyPath("/none")},
		{zktest.OpSync, new(encoder).string("/")},
		{zktest.OpDelete, new(encoder).string("/none").int32(-1)},
		{zktest.OpPing, new(encoder)},
		{zktest.OpSetWatches, new(encoder).int64(0).strings(nil).strings(nil).strings(nil)},
	}
	for i := range len(ops) {
		wait.Pass(t, 6*TickTime) // the session must grow old
		if code := do(t, w, ops[i%len(ops)].op, ops[i%len(ops)].body); code != 0 && code != zktest.ErrNoNode {
			t.Errorf("%v: %v", ops[i%len(ops)].op, code)
		}
	}
}

// caseRestart: sessions outlive a restart, however long it takes, and their time begins anew.
func caseRestart(t *testing.T, target Target, srv *Server) {
	const timeout = 15 * TickTime // a real server takes its time to start
	w := connect(t, srv, hello{timeout: timeout})
	must(t, asError(do(t, w, zktest.OpCreate, bodyCreate("/restart", 0))))
	must(t, asError(do(t, w, zktest.OpCreate, bodyCreate("/restart/e", 1))))
	before, err := w.call(zktest.OpExists, bodyPath("/restart/e").b)
	must(t, err)
	srv.Restart(timeout + 2*TickTime)
	if !w.closed() {
		t.Error("the connection outlived the restart")
	}
	up := time.Now()
	watcher := connect(t, srv, hello{timeout: 20 * TickTime, lastZxid: before.zxid})
	after, err := watcher.call(zktest.OpExists, new(encoder).string("/restart/e").bool(true).b)
	must(t, err)
	if after.err != 0 || before.body.stat() != after.body.stat() {
		t.Fatalf("the ephemeral changed over the restart (error %v)", after.err)
	}
	if !target.Bubble { // it began to count before it answered
		up = up.Add(-2 * time.Second)
	}
	if _, err := watcher.readFrame(); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(up); d < timeout {
		t.Errorf("expired %v after the restart, before its time %v", d, timeout)
	}
	must(t, asError(do(t, watcher, zktest.OpCreate, bodyCreate("/restart/e", 1))))
	srv.Restart(0)
	back := connect(t, srv, hello{timeout: timeout, session: watcher.session, password: watcher.password})
	if back.session != watcher.session {
		t.Fatalf("attached to %#x, want %#x", back.session, watcher.session)
	}
	must(t, asError(do(t, back, zktest.OpDelete, new(encoder).string("/restart/e").int32(0))))
}

// casePacketLimit: a packet of jute.maxbuffer passes, one byte more drops the connection.
func casePacketLimit(t *testing.T, _ Target, srv *Server) {
	const limit = 0xfffff
	w := connect(t, srv, hello{timeout: 20 * TickTime})
	must(t, asError(do(t, w, zktest.OpCreate, bodyCreate("/packet-limit", 0))))
	around := 8 + len(new(encoder).string("/packet-limit").bytes([]byte{}).int32(-1).b)
	body := func(more int) *encoder {
		return new(encoder).string("/packet-limit").bytes(make([]byte, limit-around+more)).int32(-1)
	}
	must(t, asError(do(t, w, zktest.OpSetData, body(0))))
	r, err := w.call(zktest.OpGetData, bodyPath("/packet-limit").b)
	must(t, err)
	if n := len(r.body.bytes()); n != limit-around {
		t.Errorf("read %d bytes back, wrote %d", n, limit-around)
	}
	if _, err := w.call(zktest.OpSetData, body(1).b); err == nil {
		t.Error("a packet above the limit was answered")
	}
	w = connect(t, srv, hello{timeout: 20 * TickTime, session: w.session, password: w.password})
	must(t, asError(do(t, w, zktest.OpDelete, new(encoder).string("/packet-limit").int32(1))))
}

// casePipelining: requests sent at once are executed and answered in order.
func casePipelining(t *testing.T, _ Target, srv *Server) {
	w := connect(t, srv, hello{timeout: 20 * TickTime})
	must(t, asError(do(t, w, zktest.OpCreate, bodyCreate("/pipelining", 0))))
	for i := range 200 {
		if _, err := w.send(zktest.OpCreate, bodyCreate("/pipelining/n", 2).b); err != nil {
			t.Fatal(err)
		}
		if _, err := w.send(zktest.OpExists, bodyPath(fmt.Sprintf("/pipelining/n%010d", i)).b); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 400 {
		r, err := w.receive()
		must(t, err)
		if r.err != 0 || r.xid != int32(i+2) {
			t.Fatalf("reply %d: xid %d, error %v", i, r.xid, r.err)
		}
	}
}

// caseEventZxid: since 3.9 a notification says which transaction it comes from.
func caseEventZxid(t *testing.T, target Target, srv *Server) {
	w := connect(t, srv, hello{timeout: 20 * TickTime})
	if code := do(t, w, zktest.OpExists, new(encoder).string("/event-zxid").bool(true)); code != zktest.ErrNoNode {
		t.Fatal(code)
	}
	r, err := w.call(zktest.OpCreate, bodyCreate("/event-zxid", 0).b)
	must(t, err)
	want := int64(-1)
	if target.EventsHaveZxid {
		want = r.zxid
	}
	if len(w.events) != 1 || w.events[0].zxid != want {
		t.Errorf("events %+v, want one of zxid %d", w.events, want)
	}
}

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
