package zktest_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/zktest"
)

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
			noerr.Last(t)(a.Get("/e"))
			time.Sleep(time.Second)
		}
		nw.Client("a").BlackHole(zktest.Both)
		<-gone
		if d := time.Since(start); d != 8*time.Second {
			t.Errorf("expired after %v, want 8s", d)
		}
	})
}
