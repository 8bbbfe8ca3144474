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

func TestClientInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, nw := zktest.StartVirtual(t, zktest.Options{})
		a := connect(t, "zk:2181", nw.Client("a").Dial, 6*time.Second)
		b := connect(t, "zk:2181", nw.Client("b").Dial, 6*time.Second)
		open := zk.WorldACL(zk.PermAll)
		noerr.Last(t)(a.Create("/x", []byte("1"), 0, open))
		p, err := a.Create("/x/e-", nil, zk.FlagEphemeral|zk.FlagSequence, open)
		if err != nil || p != "/x/e-0000000000" {
			t.Fatal(p, err)
		}
		names, st, ch, err := b.ChildrenW("/x")
		if err != nil || len(names) != 1 || st.Cversion != 1 {
			t.Fatal(names, st, err)
		}
		if _, err := b.Create(p+"/y", nil, 0, open); !errors.Is(err, zk.ErrNoChildrenForEphemerals) {
			t.Fatal(err)
		}
		res, err := b.Multi(&zk.CheckVersionRequest{Path: "/x", Version: 0}, &zk.SetDataRequest{Path: "/x", Data: []byte("2"), Version: 0})
		if err != nil || len(res) != 2 {
			t.Fatal(res, err)
		}
		res, err = b.Multi(&zk.SetDataRequest{Path: "/x", Data: []byte("3"), Version: -1}, &zk.CheckVersionRequest{Path: "/x", Version: 7},
			&zk.DeleteRequest{Path: "/x", Version: -1})
		if !errors.Is(err, zk.ErrBadVersion) || len(res) != 3 {
			t.Fatal(res, err)
		}
		if data, _, _ := srv.Get("/x"); string(data) != "2" {
			t.Fatalf("%q", data)
		}
		nw.Client("a").BlackHole(zktest.Both)
		start := time.Now()
		ev := <-ch
		if ev.Type != zk.EventNodeChildrenChanged {
			t.Fatal(ev)
		}
		// The last thing heard from a is a request at 0 s: 0+6 s, rounded up to the next tick.
		if d := time.Since(start); d != 8*time.Second {
			t.Fatal(d)
		}
		nw.Client("a").Heal()
		if n := len(srv.Sessions()); n != 1 {
			t.Fatal(n)
		}
	})
}

func TestVirtualDay(t *testing.T) {
	began := time.Now()
	synctest.Test(t, func(t *testing.T) {
		srv, nw := zktest.StartVirtual(t, zktest.Options{})
		connect(t, "zk:2181", nw.Dial, 10*time.Second)
		time.Sleep(24 * time.Hour)
		st := srv.Stats()
		if st.Sessions != 1 || st.SessionsExpired != 0 || st.Requests[zktest.OpPing] < 20_000 {
			t.Fatalf("%+v", st)
		}
	})
	t.Log("took", time.Since(began))
}
