package zktest_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/zktest"
)

const timeout = 6 * time.Second // 3 ticks

func open() []zk.ACL { return zk.WorldACL(zk.PermAll) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// create makes a znode and returns the moment at which the server had it.
func create(t *testing.T, c *zk.Conn, path string, flags int32) time.Time {
	t.Helper()
	_, err := c.Create(path, nil, flags, open())
	must(t, err)
	return time.Now()
}

// watchGone returns a channel that says when a znode goes.
func watchGone(t *testing.T, c *zk.Conn, path string) <-chan zk.Event {
	t.Helper()
	ok, _, ch, err := c.ExistsW(path)
	if err != nil || !ok {
		t.Fatal(path, ok, err)
	}
	return ch
}

// bubble runs f in a bubble with a server and two clients; what they do is in virtual time.
func bubble(t *testing.T, f func(t *testing.T, srv *zktest.Server, nw *zktest.Network, a, b *zk.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv, nw := zktest.StartVirtual(t, zktest.Options{})
		a := connect(t, "zk:2181", nw.Client("a").Dial, timeout)
		b := connect(t, "zk:2181", nw.Client("b").Dial, timeout)
		f(t, srv, nw, a, b)
		nw.Heal()
		nw.Client("a").Heal()
		nw.Client("b").Heal()
		srv.Thaw()
	})
}

// TestExpiryOnTicks: a session ends at the last packet plus its timeout, rounded up to the next tick: always later, by up to
// a tick.
func TestExpiryOnTicks(t *testing.T) {
	for last, want := range map[time.Duration]time.Duration{
		0:                       8 * time.Second,
		time.Millisecond:        8 * time.Second,
		1999 * time.Millisecond: 8 * time.Second,
		2 * time.Second:         10 * time.Second,
		2001 * time.Millisecond: 10 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := zktest.NewServer(zktest.Options{})
			nw := zktest.NewNetwork()
			l, err := nw.Listen("zk")
			must(t, err)
			go func() { _ = srv.Serve(l) }()
			defer func() { _ = srv.Close() }()
			synctest.Wait()
			start := time.Now()
			time.Sleep(last)
			c := connect(t, "zk", nw.Client("a").Dial, timeout)
			nw.Client("a").BlackHole(zktest.Both)
			infos := srv.Sessions()
			if len(infos) != 1 || infos[0].Timeout != timeout || infos[0].Client != "a" ||
				infos[0].ID != c.SessionID() || !infos[0].LastTouch.Equal(start.Add(last)) || !infos[0].Expires.Equal(start.Add(want)) {
				t.Errorf("last heard at %v: %+v", last, infos)
			}
			time.Sleep(want - last - time.Millisecond)
			if len(srv.Sessions()) != 1 {
				t.Errorf("last heard at %v: expired before %v", last, want)
			}
			time.Sleep(time.Millisecond)
			synctest.Wait()
			if len(srv.Sessions()) != 0 {
				t.Errorf("last heard at %v: alive at %v", last, want)
			}
			nw.Client("a").Heal()
		})
	}
}

func TestKillSession(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server, _ *zktest.Network, a, b *zk.Conn) {
		made := create(t, a, "/e", zk.FlagEphemeral)
		gone := watchGone(t, b, "/e")
		id := a.SessionID()
		if !srv.KillSession(id) || srv.KillSession(id) || srv.KillSession(77) {
			t.Error("wrong answer")
		}
		if ev := <-gone; ev.Type != zk.EventNodeDeleted || time.Since(made) != 0 {
			t.Errorf("%+v after %v", ev, time.Since(made))
		}
		time.Sleep(5 * time.Second)
		if a.SessionID() == id || a.State() != zk.StateHasSession {
			t.Errorf("%#x in state %v", a.SessionID(), a.State())
		}
	})
}

// TestCutKeepsSession: after a cut the client comes back to its session, by both ways to cut.
func TestCutKeepsSession(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server, nw *zktest.Network, a, b *zk.Conn) {
		create(t, a, "/e", zk.FlagEphemeral)
		ids := []int64{a.SessionID(), b.SessionID()}
		for _, cut := range []func(){
			nw.Cut, nw.Client("a").Cut, srv.CutAll, func() { srv.CutSession(ids[0]) }, func() { srv.Restart(false) },
		} {
			cut()
			time.Sleep(2 * time.Second)
			if a.SessionID() != ids[0] || b.SessionID() != ids[1] || a.State() != zk.StateHasSession || b.State() != zk.StateHasSession {
				t.Fatal("a session was lost")
			}
		}
		if st := srv.Stats(); st.SessionsReattached != 2+1+2+1+2 || st.SessionsCreated != 2 || st.SessionsExpired != 0 {
			t.Errorf("%+v", st)
		}
		if _, _, ok := srv.Get("/e"); !ok {
			t.Error("the ephemeral went")
		}
	})
}

func TestFreeze(t *testing.T) {
	for name, clock := range map[string]bool{"time goes on": false, "clock stands still": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server, nw *zktest.Network, a, b *zk.Conn) {
				create(t, a, "/e", zk.FlagEphemeral)
				nw.Client("a").BlackHole(zktest.Both)
				time.Sleep(timeout / 2)
				if clock {
					srv.FreezeClock()
				} else {
					srv.Freeze()
				}
				answered := make(chan error, 1)
				go func() {
					_, _, err := b.Get("/")
					answered <- err
				}()
				time.Sleep(timeout / 2) // b gives up on its connection and comes back, unanswered
				if _, _, ok := srv.Get("/e"); !ok {
					t.Error("a frozen server expired a session")
				}
				time.Sleep(timeout)
				if _, _, ok := srv.Get("/e"); !ok {
					t.Error("a frozen server expired a session")
				}
				srv.Thaw()
				synctest.Wait()
				if _, _, ok := srv.Get("/e"); ok != clock {
					t.Errorf("the ephemeral is there: %v", ok)
				}
				<-answered
				time.Sleep(timeout / 2)
				if _, _, ok := srv.Get("/e"); ok != clock { // heard at 0, 3 s before the freeze: 8 s from then
					t.Errorf("the ephemeral is there: %v", ok)
				}
				time.Sleep(timeout)
				if _, _, ok := srv.Get("/e"); ok {
					t.Error("the ephemeral never goes")
				}
			})
		})
	}
}

// TestFrozenSaysNothing: what happens to the tree of a frozen server is told only after Thaw.
func TestFrozenSaysNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server, _ *zktest.Network, a, _ *zk.Conn) {
		_, _, changed, err := a.GetW("/")
		must(t, err)
		srv.Freeze()
		must(t, srv.Set("/", []byte("x")))
		time.Sleep(time.Second)
		select {
		case ev := <-changed:
			t.Errorf("a frozen server said %+v", ev)
		default:
		}
		srv.Thaw()
		if ev := <-changed; ev.Type != zk.EventNodeDataChanged {
			t.Errorf("%+v", ev)
		}
	})
}

func TestRefuseAndSilentHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, nw := zktest.StartVirtual(t, zktest.Options{})
		srv.RefuseHandshakes(true)
		c, _ := connectNoWait(t, "zk:2181", nw.Dial, timeout)
		time.Sleep(10 * time.Second)
		if st := srv.Stats(); st.SessionsCreated != 0 || st.Connections != 0 {
			t.Errorf("%+v", st)
		}
		srv.RefuseHandshakes(false)
		srv.SilentHandshakes(true)
		time.Sleep(10 * time.Second)
		if st := srv.Stats(); st.SessionsCreated != 0 || st.Connections != 1 || st.Requests[zktest.OpConnect] != 1 || c.State() != zk.StateConnected {
			t.Errorf("%+v in state %v", st, c.State())
		}
		srv.SilentHandshakes(false)
		time.Sleep(10 * time.Second)
		if st := srv.Stats(); st.SessionsCreated != 0 {
			t.Errorf("the silent connection was answered: %+v", st)
		}
		nw.Cut()
		time.Sleep(3 * time.Second)
		if c.State() != zk.StateHasSession {
			t.Error(c.State())
		}
	})
}

func TestLoseReply(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server, _ *zktest.Network, a, _ *zk.Conn) {
		id := a.SessionID()
		srv.LoseReply(1, func(r zktest.Request) bool { return r.Op == zktest.OpCreate && r.Path == "/lost" && r.Client == "a" })
		create(t, a, "/other", 0)
		if _, err := a.Create("/lost", nil, 0, open()); !errors.Is(err, zk.ErrConnectionClosed) {
			t.Errorf("create: %v", err)
		}
		if _, _, ok := srv.Get("/lost"); !ok {
			t.Error("it was not executed")
		}
		if _, err := a.Create("/lost", nil, 0, open()); !errors.Is(err, zk.ErrNodeExists) || a.SessionID() != id {
			t.Errorf("again: %v in session %#x", err, a.SessionID())
		}
		// A connect request's reply can be lost too: the session it made stays behind.
		srv.LoseReply(1, func(r zktest.Request) bool { return r.Op == zktest.OpConnect })
		srv.CutAll()
		time.Sleep(4 * time.Second)
		if st := srv.Stats(); st.Sessions != 2 || st.SessionsReattached != 1+3 {
			t.Errorf("%+v", st)
		}
		srv.LoseReply(5, nil)
		time.Sleep(time.Hour) // pings are not meant
		srv.LoseReply(0, nil)
		if _, err := a.Sync("/"); err != nil {
			t.Error(err)
		}
	})
}

func TestHook(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server, _ *zktest.Network, a, b *zk.Conn) {
		var mode atomic.Int32
		hold := make(chan struct{})
		srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Path != "/x" || r.Client != "a" {
				return zktest.Action{}
			}
			switch mode.Load() {
			case 1:
				return zktest.Action{Err: zktest.ErrNoAuth}
			case 2:
				return zktest.Action{Ignore: true}
			case 3:
				return zktest.Action{Cut: true}
			case 4:
				return zktest.Action{LoseReply: true}
			case 5:
				<-hold
			case 6:
				r.Path, r.Data = "/y", append(r.Data, '!')
			}
			return zktest.Action{}
		})
		do := func(m int32) error {
			mode.Store(m)
			_, err := a.Create("/x", []byte("data"), 0, open())
			return err
		}
		there := func(path string) bool {
			_, _, ok := srv.Get(path)
			return ok
		}
		if err := do(1); !errors.Is(err, zk.ErrNoAuth) || there("/x") {
			t.Error(err)
		}
		if err := do(3); !errors.Is(err, zk.ErrConnectionClosed) || there("/x") {
			t.Error(err)
		}
		if err := do(4); !errors.Is(err, zk.ErrConnectionClosed) || !there("/x") {
			t.Error(err)
		}
		must(t, srv.Delete("/x"))
		if err := do(6); err != nil || there("/x") {
			t.Error(err)
		}
		if data, _, _ := srv.Get("/y"); string(data) != "data!" {
			t.Errorf("%q", data)
		}
		// A request that is held holds up its connection, nobody else's.
		result := make(chan error, 1)
		go func() { result <- do(5) }()
		time.Sleep(time.Second)
		create(t, b, "/b", 0)
		if there("/x") {
			t.Error("a held request was executed")
		}
		close(hold)
		must(t, <-result)
		must(t, srv.Delete("/x"))
		// One that is ignored is never answered, and is no sign of life; pings go on.
		go func() { result <- do(2) }()
		time.Sleep(time.Hour)
		select {
		case err := <-result:
			t.Error("answered", err)
		default:
		}
		srv.SetHook(nil)
		srv.CutAll()
		if err := <-result; !errors.Is(err, zk.ErrConnectionClosed) || there("/x") {
			t.Error(err)
		}
	})
}

// TestHookOnConnect: a hook plays a server with other limits.
func TestHookOnConnect(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server, _ *zktest.Network, a, _ *zk.Conn) {
		var asked []time.Duration
		srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpConnect && r.Client == "a" && r.Session == a.SessionID() {
				asked = append(asked, r.Timeout)
				r.Timeout = 4 * time.Second
			}
			return zktest.Action{}
		})
		srv.CutSession(a.SessionID())
		time.Sleep(2 * time.Second)
		if got := srv.Sessions()[0].Timeout; got != 4*time.Second || !slices.Equal(asked, []time.Duration{timeout}) {
			t.Errorf("asked for %v, granted %v", asked, got)
		}
		srv.SetHook(nil)
		srv.Restart(false) // a new leader starts with the timeout of the session's creation
		if got := srv.Sessions()[0].Timeout; got != timeout {
			t.Errorf("after a restart: %v", got)
		}
	})
}

// TestNoTouch: what a follower answers before it has told the leader does not put off the session's end.
func TestNoTouch(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server, nw *zktest.Network, a, b *zk.Conn) {
		create(t, a, "/e", zk.FlagEphemeral)
		gone := watchGone(t, b, "/e")
		start := time.Now()
		srv.SetHook(func(r *zktest.Request) zktest.Action { return zktest.Action{NoTouch: r.Client == "a"} })
		for time.Since(start) < 5*time.Second {
			if _, _, err := a.Get("/e"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		nw.Client("a").BlackHole(zktest.Both)
		<-gone
		if d := time.Since(start); d != 8*time.Second {
			t.Errorf("expired after %v, want 8s", d)
		}
	})
}

func TestDownAndRestart(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server, _ *zktest.Network, a, b *zk.Conn) {
		create(t, a, "/e", zk.FlagEphemeral)
		create(t, b, "/p", 0)
		id := a.SessionID()
		srv.Down()
		time.Sleep(10 * timeout)
		if a.State() == zk.StateHasSession || srv.Stats().Connections != 0 || len(srv.Sessions()) != 2 {
			t.Error(a.State(), srv.Stats())
		}
		srv.Restart(false)
		time.Sleep(2 * time.Second)
		if a.SessionID() != id || srv.Stats().SessionsExpired != 0 {
			t.Errorf("%#x, %+v", a.SessionID(), srv.Stats())
		}

		// With the data lost, a client that has seen a higher zxid is turned away until the new one has passed it.
		last := srv.Stats().Zxid
		srv.Restart(true)
		if _, _, ok := srv.Get("/p"); ok || len(srv.Sessions()) != 0 || srv.Stats().Zxid != 0 {
			t.Error("data left")
		}
		time.Sleep(10 * timeout)
		if st := srv.Stats(); st.Sessions != 0 || a.State() == zk.StateHasSession {
			t.Errorf("%+v", st)
		}
		c := connect(t, "zk:2181", nwOf(t, srv), timeout)
		for range last {
			must(t, srv.Set("/zookeeper/quota", nil))
		}
		time.Sleep(3 * time.Second)
		if a.State() != zk.StateHasSession || a.SessionID() == id || c.SessionID() == id {
			t.Errorf("state %v, session %#x after %#x", a.State(), a.SessionID(), id)
		}
	})
}

// nwOf serves srv on one more network.
func nwOf(t *testing.T, srv *zktest.Server) dialFunc {
	t.Helper()
	nw := zktest.NewNetwork()
	l, err := nw.Listen("zk:2181")
	must(t, err)
	go func() { _ = srv.Serve(l) }()
	return nw.Client("c").Dial
}

// TestIsolate plays a deposed leader: it goes on answering reads and Sync while the others expire the session.
func TestIsolate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(zktest.Options{})
		defer func() { _ = srv.Close() }()
		nw := zktest.NewNetwork()
		for _, address := range []string{"zk1", "zk2"} {
			l, err := nw.Listen(address)
			must(t, err)
			go func() { _ = srv.Serve(l) }()
		}
		a := connect(t, "zk1", nw.Client("a").Dial, timeout)
		b := connect(t, "zk2", nw.Client("b").Dial, timeout)
		create(t, a, "/e", zk.FlagEphemeral)
		gone := watchGone(t, b, "/e")
		own := watchGone(t, a, "/e")
		srv.Isolate("zk1")
		start := time.Now()
		<-gone
		if d := time.Since(start); d != 8*time.Second {
			t.Errorf("expired after %v", d)
		}
		create(t, b, "/e", zk.FlagEphemeral)
		time.Sleep(time.Minute)
		if _, stat, err := a.Get("/e"); err != nil || stat.EphemeralOwner != a.SessionID() || a.State() != zk.StateHasSession {
			t.Errorf("a sees %+v, %v", stat, err)
		}
		if _, err := a.Sync("/e"); err != nil {
			t.Error(err)
		}
		ok, _, later, err := a.ExistsW("/later")
		if ok || err != nil {
			t.Error(err)
		}
		written := make(chan error, 1)
		go func() { written <- a.Delete("/e", -1) }()
		create(t, b, "/later", 0)
		time.Sleep(time.Minute)
		select {
		case ev := <-later:
			t.Errorf("watch fired: %+v", ev)
		case ev := <-own:
			t.Errorf("watch fired: %+v", ev)
		case err := <-written:
			t.Errorf("write answered: %v", err)
		default:
		}
		c, _ := connectNoWait(t, "zk1", nw.Client("c").Dial, timeout)
		time.Sleep(5 * time.Second)
		if c.State() == zk.StateHasSession {
			t.Error("an isolated server made a session")
		}
		old := a.SessionID()
		srv.Rejoin("zk1")
		if err := <-written; !errors.Is(err, zk.ErrConnectionClosed) {
			t.Error(err)
		}
		time.Sleep(5 * time.Second)
		if a.SessionID() == old || a.State() != zk.StateHasSession || c.State() != zk.StateHasSession {
			t.Error(a.State(), c.State())
		}
		if ev := <-own; ev.Type != zk.EventNotWatching {
			t.Errorf("%+v", ev)
		}
		if _, stat, ok := srv.Get("/e"); !ok || stat.EphemeralOwner != b.SessionID() {
			t.Errorf("%+v %v", stat, ok)
		}
	})
}

// TestContainers: a container goes at the next full minute after its last child has gone, and not before it had one.
func TestContainers(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server, _ *zktest.Network, a, _ *zk.Conn) {
		for _, path := range []string{"/c", "/c/d", "/never"} {
			_, err := a.CreateContainer(path, nil, 4, open())
			must(t, err)
		}
		create(t, a, "/c/d/x", 0)
		time.Sleep(5 * time.Minute)
		must(t, a.Delete("/c/d/x", -1))
		gone := watchGone(t, a, "/c/d")
		time.Sleep(59 * time.Second)
		if got := srv.Children("/c"); len(got) != 1 {
			t.Error(got)
		}
		time.Sleep(2 * time.Second)
		if ev := <-gone; ev.Type != zk.EventNodeDeleted {
			t.Error(ev)
		}
		time.Sleep(time.Minute)
		if got := srv.Children("/"); !slices.Equal(got, []string{"never", "zookeeper"}) {
			t.Error(got)
		}
	})
}

// TestDirect: what a test does to the tree is seen by the clients, and the other way round.
func TestDirect(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server, _ *zktest.Network, a, _ *zk.Conn) {
		_, _, made, err := a.ExistsW("/x/y/z")
		must(t, err)
		must(t, srv.Create("/x/y/z", []byte("1")))
		if ev := <-made; ev.Type != zk.EventNodeCreated {
			t.Error(ev)
		}
		_, _, changed, err := a.GetW("/x/y/z")
		must(t, err)
		must(t, srv.Set("/x/y/z", []byte("2")))
		if ev := <-changed; ev.Type != zk.EventNodeDataChanged {
			t.Error(ev)
		}
		create(t, a, "/x/e", zk.FlagEphemeral)
		if got := srv.Children("/x"); !slices.Equal(got, []string{"e", "y"}) {
			t.Error(got)
		}
		if got := srv.Children("/x/e"); got == nil || len(got) != 0 {
			t.Error(got)
		}
		if got := srv.Children("/none"); got != nil {
			t.Error(got)
		}
		want := "/x \"\"\n/x/e \"\" owner=0x"
		if got := srv.Dump(); got[:len(want)] != want {
			t.Errorf("%q", got)
		}
		_, gone := make([]int, 0), watchGone(t, a, "/x/y")
		_, _, children, err := a.ChildrenW("/")
		must(t, err)
		must(t, srv.Delete("/x"))
		if ev := <-gone; ev.Type != zk.EventNodeDeleted {
			t.Error(ev)
		}
		<-children
		if len(srv.Sessions()[0].Ephemerals) != 0 {
			t.Error("the session still counts its ephemeral")
		}
		for _, err := range []error{srv.Set("/none", nil), srv.Delete("/none"), srv.Delete("/none/deep")} {
			if !errors.Is(err, zktest.ErrNoNode) {
				t.Error(err)
			}
		}
		for _, err := range []error{srv.Create("x", nil), srv.Create("/x/../y", nil), srv.Create("/x//y", nil), srv.Delete("/"), srv.Delete("/zookeeper")} {
			if !errors.Is(err, zktest.ErrBadArguments) {
				t.Error(err)
			}
		}
		if err := srv.Create("/zookeeper", nil); !errors.Is(err, zktest.ErrNodeExists) {
			t.Error(err)
		}
		if got := srv.Children("/"); !slices.Equal(got, []string{"zookeeper"}) {
			t.Error(got)
		}
	})
}

// TestNumbersEnd: a directory that has seen 2^31-1 creations gives the same number for ever, and its cversion and pzxid
// stand still. (By the source, DataTree.createNode: they are set only when the cversion is greater.)
func TestNumbersEnd(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server, _ *zktest.Network, a, _ *zk.Conn) {
		must(t, srv.Create("/x", nil))
		must(t, srv.SetCreates("/x", math.MaxInt32-1))
		var pzxid int64
		for i, want := range []string{"2147483646", "2147483647", "2147483647"} {
			prefix := fmt.Sprintf("/x/%c-", 'a'+i)
			got, err := a.Create(prefix, nil, zk.FlagSequence, open())
			if must(t, err); got != prefix+want {
				t.Errorf("%s, want %s%s", got, prefix, want)
			}
			_, stat, err := a.Get("/x")
			if must(t, err); i == 0 {
				pzxid = stat.Pzxid
			} else if stat.Pzxid != pzxid {
				t.Errorf("creation %d has changed the pzxid", i)
			}
		}
		if _, err := a.Create("/x/c-", nil, zk.FlagSequence, open()); !errors.Is(err, zk.ErrNodeExists) {
			t.Errorf("the same name again: %v", err)
		}
		if err := srv.SetCreates("/none", 1); !errors.Is(err, zktest.ErrNoNode) {
			t.Error(err)
		}
		if err := srv.SetCreates("/x", -1); !errors.Is(err, zktest.ErrBadArguments) {
			t.Error(err)
		}
	})
}
