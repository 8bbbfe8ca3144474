package party_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// TestEveryChildIsAMember, whatever its name and its data.
func TestEveryChildIsAMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.session("operator")
		inc := incarnation(c, s)
		must(t, inc.EnsurePath(t.Context(), directory))
		foreign := map[string][]byte{
			"a b":       nil,
			"é\u4e00":   []byte("{}"),
			"_c_x":      {0xff, 0xfe},
			"<script>":  []byte(strings.Repeat("[", 60_000)),
			"full":      make([]byte, 64<<10),
			"too-large": make([]byte, 64<<10+1),
			"1MiB":      make([]byte, 1_000_000),
			"n000001":   []byte("x"),
		}
		for name, data := range foreign {
			must(t, c.srv.Create(node(name), data))
		}
		a := c.join("a")
		a.joined()
		view := a.View()
		if len(view.Members) != len(foreign)+1 || !slices.IsSorted(names(view)) {
			t.Fatalf("got %s", show(view))
		}
		for name, data := range foreign {
			m, ok := view.Member(name)
			switch {
			case !ok || m.Czxid == 0 || m.Session != 0:
				t.Errorf("%q is %+v", name, m)
			case len(data) > 64<<10 && (!errors.Is(m.Err, party.ErrRecordTooLarge) || m.Data != nil):
				t.Errorf("%q: %d bytes, %v", name, len(m.Data), m.Err)
			case len(data) <= 64<<10 && (m.Err != nil || string(m.Data) != string(data)):
				t.Errorf("%q: %d bytes, %v", name, len(m.Data), m.Err)
			}
		}
		version := view.Version
		time.Sleep(10 * timeout)
		if a.View().Version != version {
			t.Error("a new version in calm")
		}
	})
}

func TestUnreadableRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		must(t, c.srv.Create(directory, nil))
		s, _ := c.sessionWith("secret", session.Options{ACL: session.WorldACL(session.PermAll &^ session.PermRead)})
		inc := incarnation(c, s)
		_, err := inc.Create(t.Context(), node("secret"), []byte("x"), session.Ephemeral)
		must(t, err)
		a := c.join("a")
		a.joined()
		m, ok := a.View().Member("secret")
		if !ok || !errors.Is(m.Err, session.ErrNoAuth) || m.Data != nil {
			t.Errorf("got %+v", m)
		}
		version := a.View().Version
		time.Sleep(10 * timeout)
		if a.View().Version != version {
			t.Error("a new version in calm")
		}
		// Of our own name it has to be known.
		b := c.join("secret")
		<-b.done
		wantErr(t, b.err, session.ErrNoAuth)
		if !strings.Contains(b.err.Error(), node("secret")) {
			t.Errorf("%q does not name the znode", b.err)
		}
	})
}

func TestDirectoryDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpGetChildren2 && r.Path == directory {
				return zktest.Action{Err: zktest.ErrNoAuth}
			}
			return zktest.Action{}
		})
		a := c.join("a")
		<-a.done
		wantErr(t, a.err, session.ErrNoAuth)
		if !strings.Contains(a.err.Error(), directory) {
			t.Errorf("%q does not name the directory", a.err)
		}
		if _, ok := c.stands("a"); ok {
			t.Error("the znode was left behind")
		}
	})
}

// TestHiddenReplacement: a member that goes and comes back between two
// readings has the same name and another record.
func TestHiddenReplacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.join("a")
		for i := range 40 { // more than are audited at a time
			must(t, c.srv.Create(node(fmt.Sprintf("m%02d", i)), []byte("old")))
		}
		a.await(5*time.Second, "all", func(v *party.View) bool { return len(v.Members) == 41 })
		time.Sleep(time.Second) // no reading is near
		c.net.Client("a").Delay(300 * time.Millisecond)
		must(t, c.srv.Delete(node("m20")))
		must(t, c.srv.Create(node("m20"), []byte("new")))
		a.await(4*time.Second, "the new record", func(v *party.View) bool {
			m, _ := v.Member("m20")
			return string(m.Data) == "new"
		})
	})
}

// TestDirectoryMadeAnew with the same names: its counters say that nothing
// happened.
func TestDirectoryMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		fill := func(data string) {
			for i := range 40 {
				must(t, c.srv.Create(node(fmt.Sprintf("m%02d", i)), []byte(data)))
			}
		}
		fill("old")
		o := c.observe()
		o.await(time.Second, "all", func(v *party.View) bool { return len(v.Members) == 40 })
		c.net.Client("observer").Delay(100 * time.Millisecond)
		must(t, c.srv.Delete(directory))
		fill("new")
		o.await(4*time.Second, "the new records", func(v *party.View) bool {
			m, _ := v.Member("m20")
			return string(m.Data) == "new"
		})
	})
}

// TestZxidsComeAgain after a loss of all data, and say nothing about what was.
func TestZxidsComeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		refill := func(zxid int64, data string) {
			must(t, c.srv.Create(directory, nil))
			for c.srv.Stats().Zxid < zxid-1 {
				must(t, c.srv.Set(directory, nil))
			}
			must(t, c.srv.Create(node("m"), []byte(data)))
			if _, stat, _ := c.srv.Get(node("m")); stat.Czxid != zxid {
				t.Fatalf("czxid %d, want %d", stat.Czxid, zxid)
			}
		}
		refill(100, "old")
		o := c.observe()
		o.awaitNames(time.Second, "m")
		c.net.Client("observer").Freeze()
		c.srv.Restart(true)
		refill(100, "new")
		c.net.Client("observer").Heal()
		o.await(time.Minute, "the new record", func(v *party.View) bool {
			m, ok := v.Member("m")
			return ok && string(m.Data) == "new"
		})
	})
}

// TestServersGoBack: they are restored from a backup that has the session, and
// what has the same numbers there is something else.
func TestServersGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		const address = "backup:2181"
		backup := zktest.NewServer(zktest.Options{TickTime: tick})
		t.Cleanup(func() { backup.Close() })
		for srv, data := range map[*zktest.Server]string{c.srv: "old", backup: "new"} {
			must(t, srv.Create(directory, nil))
			for srv.Stats().Zxid < 99 {
				must(t, srv.Set(directory, nil))
			}
			must(t, srv.Create(node("m"), []byte(data)))
		}
		listen := func() net.Listener {
			l, err := c.net.Listen(address)
			must(t, err)
			go func() { _ = backup.Serve(l) }()
			return l
		}
		// Sessions begun in the same instant have the same id. The one on the
		// backup lives for 40 s.
		l := listen()
		raw, err := c.net.Client("raw").Dial(t.Context(), "tcp", address)
		must(t, err)
		hello := make([]byte, 4+44)
		binary.BigEndian.PutUint32(hello, 44)
		binary.BigEndian.PutUint32(hello[16:], 40_000) // ms
		binary.BigEndian.PutUint32(hello[28:], 16)     // of password
		_, err = raw.Write(hello)
		must(t, err)
		s, err := session.New([]string{zktest.VirtualAddress, address}, session.Options{Timeout: timeout, Dial: c.net.Client("a").Dial})
		must(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		t.Cleanup(func() { cancel(); must(t, <-ended) })
		synctest.Wait()
		must(t, l.Close())
		go func() { ended <- s.Run(ctx) }()
		a := c.run(s, party.Options{Name: "a", Data: []byte("record of a")})
		a.joined()
		must(t, raw.Close())
		must(t, backup.Create(node("a"), nil)) // somebody else's
		if ids := backup.Sessions(); len(ids) != 1 || ids[0].ID != c.sessionOf("a") {
			t.Fatalf("sessions %+v and %d", ids, c.sessionOf("a"))
		}
		_, was, _ := c.srv.Get(directory)
		if _, is, _ := backup.Get(directory); is.Czxid != was.Czxid || is.Cversion != was.Cversion {
			t.Fatalf("the directory is %+v, on the backup %+v", was, is)
		}
		for c.srv.Stats().Zxid < 200 {
			must(t, c.srv.Set(directory, nil))
		}
		time.Sleep(timeout) // until a has seen that
		c.srv.Down()
		listen()
		time.Sleep(2 * timeout)
		must(t, backup.Delete(node("a")))
		view, _ := a.await(5*time.Second, "itself, and the other m", func(v *party.View) bool {
			m, ok := v.Member("m")
			return v.Joined && ok && string(m.Data) == "new"
		})
		if id := backup.Sessions()[0].ID; view.Incarnation.SessionID() != id {
			t.Errorf("session %d, it was %d", view.Incarnation.SessionID(), id)
		}
	})
}

// TestRecordsChangedInPlace, which nobody should do, are found in time.
func TestRecordsChangedInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.join("zz")
		for i := range 40 {
			must(t, c.srv.Create(node(fmt.Sprintf("m%02d", i)), []byte("old")))
		}
		old, _ := a.await(5*time.Second, "all", func(v *party.View) bool { return len(v.Members) == 41 })
		for i := range 40 {
			must(t, c.srv.Set(node(fmt.Sprintf("m%02d", i)), []byte("new")))
		}
		view, _ := a.await(5*timeout, "the new records", func(v *party.View) bool {
			return !slices.ContainsFunc(v.Members, func(m party.Member) bool { return string(m.Data) == "old" })
		})
		if m, _ := view.Member("m20"); m.Mzxid <= m.Czxid || view.Version == old.Version {
			t.Errorf("got %+v in version %d after %d", m, view.Version, old.Version)
		}
	})
}

func TestOwnRecordIsMended(t *testing.T) {
	for _, data := range []string{"", "another", strings.Repeat("x", 64<<10+1)} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			for i := range 40 { // more than are audited at a time
				must(t, c.srv.Create(node(fmt.Sprintf("m%02d", i)), nil))
			}
			a := c.join("zz")
			before := a.joined()
			time.Sleep(3*timeout + time.Second)
			must(t, c.srv.Set(node("zz"), []byte(data)))
			a.await(timeout, "itself again", func(v *party.View) bool {
				m, ok := v.Member("zz")
				return ok && v.Joined && m.Czxid > before && string(m.Data) == "record of zz"
			})
			if data, _, _ := c.srv.Get(node("zz")); string(data) != "record of zz" {
				t.Errorf("the record is %.20q", data)
			}
		})
	}
}

// TestManyMembers looks at how much a storm costs.
func TestManyMembers(t *testing.T) {
	const n = 200
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var all []*member
		for i := range n {
			all = append(all, c.join(fmt.Sprintf("m%03d", i)))
		}
		start := time.Now()
		for _, m := range all {
			m.await(10*time.Second, "all", func(v *party.View) bool { return v.Joined && len(v.Members) == n })
		}
		t.Logf("%d members agreed after %v, requests %v", n, time.Since(start), c.srv.Stats().Requests)
		if lists := c.srv.Stats().Requests[zktest.OpGetChildren2]; lists > 10*n {
			t.Errorf("the directory was read %d times", lists)
		}
		if watches := c.srv.Stats().Watches; watches > n+1 {
			t.Errorf("%d watches", watches)
		}
		start = time.Now()
		for _, m := range all[n/2:] {
			m.cancel()
		}
		for _, m := range all[:n/2] {
			m.await(10*time.Second, "half", func(v *party.View) bool { return len(v.Members) == n/2 })
		}
		t.Logf("half of them left, seen by all after %v", time.Since(start))
		before := c.srv.Stats().Requests
		time.Sleep(10 * timeout)
		after := c.srv.Stats().Requests
		if looks := after[zktest.OpExists] - before[zktest.OpExists]; looks > n/2*12*17 {
			t.Errorf("%d members were looked at in calm", looks)
		}
		if reads := after[zktest.OpGetData] - before[zktest.OpGetData]; reads > n {
			t.Errorf("%d records were read in calm", reads)
		}
	})
}

// TestStormIsPaced: the more members there are, the fewer readings while many
// come, but the first is seen at once.
func TestStormIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		for i := range 300 {
			must(t, c.srv.Create(node(fmt.Sprintf("m%03d", i)), nil))
		}
		o := c.observe()
		o.await(time.Second, "all", func(v *party.View) bool { return len(v.Members) == 300 })
		time.Sleep(time.Second)
		before := c.srv.Stats().Requests[zktest.OpGetChildren2]
		must(t, c.srv.Create(node("first"), nil))
		if _, took := o.await(time.Second, "the first", func(v *party.View) bool { return len(v.Members) == 301 }); took > 10*time.Millisecond {
			t.Errorf("the first was seen after %v", took)
		}
		for i := range 300 {
			must(t, c.srv.Create(node(fmt.Sprintf("n%03d", i)), nil))
			time.Sleep(10 * time.Millisecond)
		}
		o.await(time.Second, "all", func(v *party.View) bool { return len(v.Members) == 601 })
		if lists := c.srv.Stats().Requests[zktest.OpGetChildren2] - before; lists > 12 {
			t.Errorf("the directory was read %d times in 3 s", lists)
		}
	})
}

// TestAllAgree throws everything at a few members and then lets them settle:
// every view must be what the server holds.
func TestAllAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) { allAgree(t) })
	})
}

func allAgree(t *rapid.T) {
	c := newCluster(t)
	members := make(map[string]*member)
	pick := func() string { return rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "who") }
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	for range rapid.IntRange(1, 25).Draw(t, "steps") {
		name := pick()
		m := members[name]
		switch what := rapid.SampledFrom([]string{"toggle", "toggle", "kill", "delete", "remake", "cut", "lose", "wait", "directory", "freeze", "set"}).Draw(t, "what"); {
		case what == "toggle" && m == nil:
			members[name] = c.join(name)
		case what == "toggle":
			if err := m.stop(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			delete(members, name)
		case what == "kill" && m != nil:
			for _, info := range c.srv.Sessions() {
				if info.Client == name {
					c.srv.KillSession(info.ID)
				}
			}
		case what == "delete":
			_ = c.srv.Delete(node(name))
		case what == "remake":
			_ = c.srv.Delete(node("other"))
			_ = c.srv.Create(node("other"), fmt.Append(nil, rng.Int()))
		case what == "set":
			_ = c.srv.Set(node("other"), fmt.Append(nil, rng.Int()))
		case what == "cut":
			c.net.Client(name).Cut()
		case what == "lose":
			c.srv.LoseReply(1, nil)
		case what == "directory":
			_ = c.srv.Delete(directory)
		case what == "freeze":
			c.net.Client(name).Freeze()
			time.Sleep(time.Duration(rng.Int64N(int64(2 * timeout))))
			c.net.Client(name).Heal()
		}
		time.Sleep(time.Duration(rng.Int64N(int64(300 * time.Millisecond))))
	}
	c.srv.LoseReply(0, nil)
	time.Sleep(4 * timeout)
	for name, m := range members {
		view := m.View()
		if view == nil || !view.Joined || !view.Incarnation.Trusted() {
			t.Fatalf("%s: %s, Run's error %v", name, show(view), m.err)
		}
		if want := c.srv.Children(directory); !slices.Equal(names(view), want) {
			t.Fatalf("%s sees %q, there are %q", name, names(view), want)
		}
		for _, got := range view.Members {
			data, stat, _ := c.srv.Get(node(got.Name))
			if got.Czxid != stat.Czxid || string(got.Data) != string(data) || got.Session != stat.EphemeralOwner {
				t.Fatalf("%s sees %+v, there is %q, %+v", name, got, data, stat)
			}
		}
	}
}
