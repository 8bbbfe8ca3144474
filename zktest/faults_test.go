package zktest_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/zktest"
)

const timeout = 6 * time.Second // 3 ticks

func open() []zk.ACL { return zk.WorldACL(zk.PermAll) }

func must(t *testing.T, err error) {
	t.Helper()
	noerr.Must(t, err)
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

// TestExpiryOnTicks: a session ends at the last packet plus its timeout, rounded up to the next tick: always later, by up to a
// tick.
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
