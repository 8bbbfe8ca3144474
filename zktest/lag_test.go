package zktest_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/zktest"
)

// TestLag: a follower that lags shows an older tree, and fires no watch, until its client calls Sync, writes, or begins a
// session; and no session reads older data than it read before.
func TestLag(t *testing.T) {
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
		// next creates a znode through the other server, and says whether the follower showed it and fired a watch before and
		// after something was done.
		next := func(path string, do func()) (before, after bool) {
			ok, _, watch, err := a.ExistsW(path)
			must(t, err)
			if ok {
				t.Fatal(path, "exists")
			}
			create(t, b, path, 0)
			look := func() bool {
				synctest.Wait()
				ok, _, err := a.Exists(path)
				must(t, err)
				if fired := len(watch) > 0; fired != ok {
					t.Errorf("%s: it exists %t, the watch fired %t", path, ok, fired)
				}
				return ok
			}
			before = look()
			do()
			return before, look()
		}
		for _, c := range []struct {
			path string
			lag  bool
			do   func()
			want [2]bool
		}{
			{"/1", false, func() {}, [2]bool{true, true}},
			{"/2", true, func() { time.Sleep(time.Minute) }, [2]bool{false, false}},
			{"/3", true, func() { _, err := a.Sync("/"); must(t, err) }, [2]bool{false, true}},
			{"/4", true, func() { create(t, a, "/own", 0) }, [2]bool{false, true}},
			{"/5", true, func() { connect(t, "zk1", nw.Client("c").Dial, timeout) }, [2]bool{false, true}},
			{"/6", true, func() { srv.CatchUp("zk1") }, [2]bool{false, true}},
			{"/7", false, func() {}, [2]bool{true, true}},
		} {
			if c.lag {
				srv.Lag("zk1")
			}
			if before, after := next(c.path, c.do); c.want != [2]bool{before, after} {
				t.Errorf("%s: shown before %t, after %t, want %v", c.path, before, after, c.want)
			}
		}

		// A client that has seen more is turned away, until the follower has seen as much.
		where := "zk2"
		d := connect(t, "zk", func(ctx context.Context, network, _ string) (net.Conn, error) {
			return nw.Client("d").Dial(ctx, network, where)
		}, timeout)
		id := d.SessionID()
		srv.Lag("zk1")
		create(t, b, "/8", 0)
		_, err := d.Sync("/8")
		must(t, err)
		where = "zk1"
		nw.Client("d").Cut()
		time.Sleep(timeout / 2)
		if d.State() == zk.StateHasSession {
			t.Error("a follower that lags let in a client that has seen more")
		}
		srv.CatchUp("zk1")
		time.Sleep(timeout / 3)
		if ok, _, err := d.Exists("/8"); !ok || err != nil || d.SessionID() != id {
			t.Errorf("exists %t, %v, session %#x, was %#x", ok, err, d.SessionID(), id)
		}
	})
}
