package party_test

import (
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

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// TestEveryChildIsAMember, whatever its name and its data.
func TestEveryChildIsAMember(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.session("operator")
		inc := incarnation(w, s)
		must(w, inc.EnsurePath(w.Context(), directory))
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
			must(w, w.Srv.Create(node(name), data))
		}
		a := w.member("a")
		view := a.View()
		if len(view.Members) != len(foreign)+1 || !slices.IsSorted(names(view)) {
			w.Fatalf("got %s", show(view))
		}
		for name, data := range foreign {
			m, ok := view.Member(name)
			switch {
			case !ok || m.Czxid == 0 || m.Session != 0:
				w.Errorf("%q is %+v", name, m)
			case len(data) > 64<<10 && (!errors.Is(m.Err, party.ErrRecordTooLarge) || m.Data != nil):
				w.Errorf("%q: %d bytes, %v", name, len(m.Data), m.Err)
			case len(data) <= 64<<10 && (m.Err != nil || string(m.Data) != string(data)):
				w.Errorf("%q: %d bytes, %v", name, len(m.Data), m.Err)
			}
		}
		a.calm()
	})
}

func TestUnreadableRecord(t *testing.T) {
	inWorld(t, func(w *world) {
		must(w, w.Srv.Create(directory, nil))
		s, _ := w.stoppable("secret", session.Options{ACL: session.WorldACL(session.PermAll &^ session.PermRead)})
		inc := incarnation(w, s)
		_, err := inc.Create(w.Context(), node("secret"), []byte("x"), session.Ephemeral)
		must(w, err)
		a := w.member("a")
		m, ok := a.View().Member("secret")
		if !ok || !errors.Is(m.Err, session.ErrNoAuth) || m.Data != nil {
			w.Errorf("got %+v", m)
		}
		a.calm()
		// Of our own name it has to be known.
		b := w.join("secret")
		<-b.done
		wantErr(w, b.err, session.ErrNoAuth)
		if !strings.Contains(b.err.Error(), node("secret")) {
			w.Errorf("%q does not name the znode", b.err)
		}
	})
}

func TestDirectoryDenied(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpGetChildren2 && r.Path == directory {
				return zktest.Action{Err: zktest.ErrNoAuth}
			}
			return zktest.Action{}
		})
		a := w.join("a")
		<-a.done
		wantErr(w, a.err, session.ErrNoAuth)
		if !strings.Contains(a.err.Error(), directory) {
			w.Errorf("%q does not name the directory", a.err)
		}
		w.wantGone("a")
	})
}

// TestHiddenReplacement: a member that goes and comes back between two readings has the same name and another record.
func TestHiddenReplacement(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.join("a")
		w.create(40, "old") // more than are audited at a time
		a.await(5*time.Second, "all", func(v *party.View) bool { return len(v.Members) == 41 })
		time.Sleep(time.Second) // no reading is near
		w.Net.Client("a").Delay(300 * time.Millisecond)
		must(w, w.Srv.Delete(node("m20")))
		must(w, w.Srv.Create(node("m20"), []byte("new")))
		a.await(4*time.Second, "the new record", func(v *party.View) bool {
			m, _ := v.Member("m20")
			return string(m.Data) == "new"
		})
	})
}

// TestDirectoryMadeAnew with the same names: its counters say that nothing happened.
func TestDirectoryMadeAnew(t *testing.T) {
	inWorld(t, func(w *world) {
		fill := func(data string) {
			for i := range 40 {
				must(w, w.Srv.Create(node(fmt.Sprintf("m%02d", i)), []byte(data)))
			}
		}
		fill("old")
		o := w.observe()
		o.await(time.Second, "all", func(v *party.View) bool { return len(v.Members) == 40 })
		w.Net.Client("observer").Delay(100 * time.Millisecond)
		must(w, w.Srv.Delete(directory))
		fill("new")
		o.await(4*time.Second, "the new records", func(v *party.View) bool {
			m, _ := v.Member("m20")
			return string(m.Data) == "new"
		})
	})
}

// TestZxidsComeAgain after a loss of all data, and say nothing about what was.
func TestZxidsComeAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		refill := func(zxid int64, data string) {
			must(w, w.Srv.Create(directory, nil))
			for w.Srv.Stats().Zxid < zxid-1 {
				must(w, w.Srv.Set(directory, nil))
			}
			must(w, w.Srv.Create(node("m"), []byte(data)))
			if _, stat, _ := w.Srv.Get(node("m")); stat.Czxid != zxid {
				w.Fatalf("czxid %d, want %d", stat.Czxid, zxid)
			}
		}
		refill(100, "old")
		o := w.observe()
		o.awaitNames(time.Second, "m")
		w.Net.Client("observer").Freeze()
		w.Srv.Restart(true)
		refill(100, "new")
		w.Net.Client("observer").Heal()
		o.await(time.Minute, "the new record", func(v *party.View) bool {
			m, ok := v.Member("m")
			return ok && string(m.Data) == "new"
		})
	})
}

// TestServersGoBack: they are restored from a backup that has the session, and what has the same numbers there is something else.
func TestServersGoBack(t *testing.T) {
	inWorld(t, func(w *world) {
		const address = "backup:2181"
		backup := zktest.NewServer(zktest.Options{TickTime: tick})
		w.Cleanup(func() { backup.Close() })
		for srv, data := range map[*zktest.Server]string{w.Srv: "old", backup: "new"} {
			must(w, srv.Create(directory, nil))
			for srv.Stats().Zxid < 99 {
				must(w, srv.Set(directory, nil))
			}
			must(w, srv.Create(node("m"), []byte(data)))
		}
		listen := func() net.Listener {
			l, err := w.Net.Listen(address)
			must(w, err)
			go func() { _ = backup.Serve(l) }()
			return l
		}
		// Sessions begun in the same instant have the same id. The one on the backup lives for 40 s.
		l := listen()
		raw, err := w.Net.Client("raw").Dial(w.Context(), "tcp", address)
		must(w, err)
		hello := make([]byte, 4+44)
		binary.BigEndian.PutUint32(hello, 44)
		binary.BigEndian.PutUint32(hello[16:], 40_000) // ms
		binary.BigEndian.PutUint32(hello[28:], 16)     // of password
		_, err = raw.Write(hello)
		must(w, err)
		s, err := session.New([]string{zktest.VirtualAddress, address}, session.Options{Timeout: timeout, Dial: w.Net.Client("a").Dial})
		must(w, err)
		synctest.Wait()
		must(w, l.Close())
		recipetest.Run(w, s)
		a := w.run(s, party.Options{Name: "a", Data: []byte("record of a")})
		a.joined()
		must(w, raw.Close())
		must(w, backup.Create(node("a"), nil)) // somebody else's
		if ids := backup.Sessions(); len(ids) != 1 || ids[0].ID != w.sessionOf("a") {
			w.Fatalf("sessions %+v and %d", ids, w.sessionOf("a"))
		}
		_, was, _ := w.Srv.Get(directory)
		if _, is, _ := backup.Get(directory); is.Czxid != was.Czxid || is.Cversion != was.Cversion {
			w.Fatalf("the directory is %+v, on the backup %+v", was, is)
		}
		for w.Srv.Stats().Zxid < 200 {
			must(w, w.Srv.Set(directory, nil))
		}
		time.Sleep(timeout) // until a has seen that
		w.Srv.Down()
		listen()
		time.Sleep(2 * timeout)
		must(w, backup.Delete(node("a")))
		view, _ := a.await(5*time.Second, "itself, and the other m", func(v *party.View) bool {
			m, ok := v.Member("m")
			return v.Joined && ok && string(m.Data) == "new"
		})
		if id := backup.Sessions()[0].ID; view.Incarnation.SessionID() != id {
			w.Errorf("session %d, it was %d", view.Incarnation.SessionID(), id)
		}
	})
}

// TestRecordsChangedInPlace, which nobody should do, are found in time.
func TestRecordsChangedInPlace(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.join("zz")
		w.create(40, "old")
		old, _ := a.await(5*time.Second, "all", func(v *party.View) bool { return len(v.Members) == 41 })
		for i := range 40 {
			must(w, w.Srv.Set(node(fmt.Sprintf("m%02d", i)), []byte("new")))
		}
		view, _ := a.await(5*timeout, "the new records", func(v *party.View) bool {
			return !slices.ContainsFunc(v.Members, func(m party.Member) bool { return string(m.Data) == "old" })
		})
		if m, _ := view.Member("m20"); m.Mzxid <= m.Czxid || view.Version == old.Version {
			w.Errorf("got %+v in version %d after %d", m, view.Version, old.Version)
		}
	})
}

func TestOwnRecordIsMended(t *testing.T) {
	for _, data := range []string{"", "another", strings.Repeat("x", 64<<10+1)} {
		inWorld(t, func(w *world) {
			w.create(40, "") // more than are audited at a time
			a := w.join("zz")
			before := a.joined()
			time.Sleep(3*timeout + time.Second)
			must(w, w.Srv.Set(node("zz"), []byte(data)))
			a.await(timeout, "itself again", func(v *party.View) bool {
				m, ok := v.Member("zz")
				return ok && v.Joined && m.Czxid > before && string(m.Data) == "record of zz"
			})
			if data, _, _ := w.Srv.Get(node("zz")); string(data) != "record of zz" {
				w.Errorf("the record is %.20q", data)
			}
		})
	}
}

// TestManyMembers looks at how much a storm costs.
func TestManyMembers(t *testing.T) {
	const n = 200
	inWorld(t, func(w *world) {
		var all []*member
		for i := range n {
			all = append(all, w.join(fmt.Sprintf("m%03d", i)))
		}
		start := time.Now()
		for _, m := range all {
			m.await(10*time.Second, "all", func(v *party.View) bool { return v.Joined && len(v.Members) == n })
		}
		w.Logf("%d members agreed after %v, requests %v", n, time.Since(start), w.Srv.Stats().Requests)
		if lists := w.Srv.Stats().Requests[zktest.OpGetChildren2]; lists > 10*n {
			w.Errorf("the directory was read %d times", lists)
		}
		if watches := w.Srv.Stats().Watches; watches > n+1 {
			w.Errorf("%d watches", watches)
		}
		start = time.Now()
		for _, m := range all[n/2:] {
			m.cancel()
		}
		for _, m := range all[:n/2] {
			m.await(10*time.Second, "half", func(v *party.View) bool { return len(v.Members) == n/2 })
		}
		w.Logf("half of them left, seen by all after %v", time.Since(start))
		before := w.Srv.Stats().Requests
		time.Sleep(10 * timeout)
		after := w.Srv.Stats().Requests
		if looks := after[zktest.OpExists] - before[zktest.OpExists]; looks > n/2*12*17 {
			w.Errorf("%d members were looked at in calm", looks)
		}
		if reads := after[zktest.OpGetData] - before[zktest.OpGetData]; reads > n {
			w.Errorf("%d records were read in calm", reads)
		}
	})
}

// TestStormIsPaced: the more members there are, the fewer readings while many come, but the first is seen at once.
func TestStormIsPaced(t *testing.T) {
	inWorld(t, func(w *world) {
		for i := range 300 {
			must(w, w.Srv.Create(node(fmt.Sprintf("m%03d", i)), nil))
		}
		o := w.observe()
		o.await(time.Second, "all", func(v *party.View) bool { return len(v.Members) == 300 })
		time.Sleep(time.Second)
		before := w.Srv.Stats().Requests[zktest.OpGetChildren2]
		must(w, w.Srv.Create(node("first"), nil))
		if _, took := o.await(time.Second, "the first", func(v *party.View) bool { return len(v.Members) == 301 }); took > 10*time.Millisecond {
			w.Errorf("the first was seen after %v", took)
		}
		for i := range 300 {
			must(w, w.Srv.Create(node(fmt.Sprintf("n%03d", i)), nil))
			time.Sleep(10 * time.Millisecond)
		}
		o.await(time.Second, "all", func(v *party.View) bool { return len(v.Members) == 601 })
		if lists := w.Srv.Stats().Requests[zktest.OpGetChildren2] - before; lists > 12 {
			w.Errorf("the directory was read %d times in 3 s", lists)
		}
	})
}

// TestAllAgree throws everything at a few members and then lets them settle: every view must be what the server holds.
func TestAllAgree(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		seed, steps := rapid.Uint64().Draw(r, "seed"), rapid.SliceOfN(rapid.Custom(drawStep), 1, 25).Draw(r, "steps")
		inWorld(t, func(w *world) {
			noerr.Want(r, allAgree(w, seed, steps))
		})
	})
}

// step is something that happens, and to whom.
type step struct{ what, who string }

func drawStep(t *rapid.T) step {
	return step{
		rapid.SampledFrom([]string{"toggle", "toggle", "kill", "delete", "remake", "cut", "lose", "wait", "directory", "freeze", "set"}).Draw(t, "what"),
		rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "who"),
	}
}

func allAgree(w *world, seed uint64, steps []step) error {
	members := make(map[string]*member)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, s := range steps {
		what, name := s.what, s.who
		m := members[name]
		switch {
		case what == "toggle" && m == nil:
			members[name] = w.join(name)
		case what == "toggle":
			if err := m.stop(); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			delete(members, name)
		case what == "kill" && m != nil:
			for _, info := range w.Srv.Sessions() {
				if info.Client == name {
					w.Srv.KillSession(info.ID)
				}
			}
		case what == "delete":
			_ = w.Srv.Delete(node(name))
		case what == "remake":
			_ = w.Srv.Delete(node("other"))
			_ = w.Srv.Create(node("other"), fmt.Append(nil, rng.Int()))
		case what == "set":
			_ = w.Srv.Set(node("other"), fmt.Append(nil, rng.Int()))
		case what == "cut":
			w.Net.Client(name).Cut()
		case what == "lose":
			w.Srv.LoseReply(1, nil)
		case what == "directory":
			_ = w.Srv.Delete(directory)
		case what == "freeze":
			w.Net.Client(name).Freeze()
			time.Sleep(time.Duration(rng.Int64N(int64(2 * timeout))))
			w.Net.Client(name).Heal()
		}
		time.Sleep(time.Duration(rng.Int64N(int64(300 * time.Millisecond))))
	}
	w.Srv.LoseReply(0, nil)
	time.Sleep(4 * timeout)
	for name, m := range members {
		view := m.View()
		if view == nil || !view.Joined || !view.Incarnation.Trusted() {
			return fmt.Errorf("%s: %s, Run's error %v", name, show(view), fmt.Sprint(m.err))
		}
		if want := w.Srv.Children(directory); !slices.Equal(names(view), want) {
			return fmt.Errorf("%s sees %q, there are %q", name, names(view), want)
		}
		for _, got := range view.Members {
			data, stat, _ := w.Srv.Get(node(got.Name))
			if got.Czxid != stat.Czxid || string(got.Data) != string(data) || got.Session != stat.EphemeralOwner {
				return fmt.Errorf("%s sees %+v, there is %q, %+v", name, got, data, stat)
			}
		}
	}
	return nil
}
