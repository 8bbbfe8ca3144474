package party_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestJoinAndLeaveAreSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.join("host1:4711")
		a.joined()
		b := c.join("host2:815")
		view, _ := a.awaitNames(time.Second, "host1:4711", "host2:815")
		if m, ok := view.Member("host2:815"); !ok || string(m.Data) != "record of host2:815" || m.Err != nil ||
			m.Session != c.sessionOf("host2:815") || m.Czxid == 0 || m.Mzxid != m.Czxid {
			t.Errorf("member is %+v", m)
		}
		if _, ok := view.Member("host2:81"); ok {
			t.Error("a member nobody knows")
		}
		b.awaitNames(time.Second, "host1:4711", "host2:815")
		must(t, b.stop())
		if _, ok := c.stands("host2:815"); ok {
			t.Error("Run has returned, the znode stands")
		}
		_, took := a.awaitNames(time.Second, "host1:4711")
		if took > 100*time.Millisecond {
			t.Errorf("leaving was seen after %v", took)
		}
		if _, stat, ok := c.srv.Get(directory); !ok || stat.EphemeralOwner != 0 {
			t.Errorf("the directory is %v, %v", stat, ok)
		}
	})
}

func TestFirstViewHoldsUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.join("a")
		for view := range a.Updates(t.Context()) {
			if !view.Joined || view.Version != 1 || view.Incarnation == nil || !view.Incarnation.Trusted() || view.At.After(time.Now()) {
				t.Errorf("the first view is %s", show(view))
			}
			break
		}
	})
}

func TestCrashIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b := c.join("a"), c.join("b")
		before := b.joined()
		a.awaitNames(time.Second, "a", "b")
		c.net.Client("b").Freeze()
		_, took := a.awaitNames(timeout+2*tick, "a")
		t.Logf("seen after %v", took)
		c.net.Client("b").Heal()
		// It comes back by itself, in a new session.
		a.awaitNames(10*time.Second, "a", "b")
		after, _ := b.await(10*time.Second, "itself again", func(v *party.View) bool {
			m, ok := v.Member("b")
			return ok && v.Joined && m.Czxid != before
		})
		if !after.Incarnation.Trusted() {
			t.Error("joined under an incarnation that is over")
		}
	})
}

func TestRejoinsInNewSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b := c.join("a"), c.join("b")
		b.joined()
		view, _ := a.awaitNames(time.Second, "a", "b")
		old, _ := view.Member("b")
		if !c.srv.KillSession(old.Session) {
			t.Fatal("no such session")
		}
		view, _ = a.await(5*time.Second, "b in a new session", func(v *party.View) bool {
			m, ok := v.Member("b")
			return ok && m.Session != old.Session
		})
		if m, _ := view.Member("b"); m.Czxid <= old.Czxid {
			t.Errorf("czxid %d after %d", m.Czxid, old.Czxid)
		}
		b.await(time.Second, "itself", func(v *party.View) bool {
			m, ok := v.Member("b")
			return ok && v.Joined && m.Session == v.Incarnation.SessionID() && m.Session != old.Session
		})
	})
}

func TestCutKeepsZnode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.join("a")
		czxid := a.joined()
		version := a.View().Version
		c.net.Client("a").Cut()
		time.Sleep(3 * timeout)
		if stat, ok := c.stands("a"); !ok || stat.Czxid != czxid {
			t.Errorf("the znode is %+v, %v; had czxid %d", stat, ok, czxid)
		}
		if v := a.View(); v.Version != version || !v.Joined {
			t.Errorf("version %d became %s", version, show(v))
		}
		if age := time.Since(a.View().At); age > timeout+time.Second {
			t.Errorf("the view was read %v ago", age)
		}
	})
}

func TestTrustLostAndRegainedKeepsZnode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.join("a")
		czxid := a.joined()
		first := a.View()
		c.srv.FreezeClock() // the session lives on, but can't be proved to
		<-first.Incarnation.Context().Done()
		c.srv.Thaw()
		view, _ := a.await(10*time.Second, "a new incarnation", func(v *party.View) bool { return v.Incarnation != first.Incarnation })
		if view.Incarnation.SessionID() != first.Incarnation.SessionID() {
			t.Fatal("it is another session")
		}
		if m, _ := view.Member("a"); !view.Joined || m.Czxid != czxid || view.Version != first.Version+1 {
			t.Errorf("czxid %d, now %d in %s", czxid, m.Czxid, show(view))
		}
	})
}

func TestNameTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.join("x")
		czxid := a.joined()
		s, _ := c.session("second")
		b := c.run(s, party.Options{Name: "x", Logger: logger(t)})
		start := time.Now()
		for view := range b.Updates(t.Context()) {
			if view.Joined {
				t.Errorf("joined under a name that is taken: %s", show(view))
			}
		}
		<-b.done
		wantErr(t, b.err, party.ErrNameTaken)
		if took := time.Since(start); took < timeout+tick || took > timeout+tick+time.Second {
			t.Errorf("took %v", took)
		}
		for _, part := range []string{node("x"), fmt.Sprintf("0x%x", c.sessionOf("x"))} {
			if !strings.Contains(b.err.Error(), part) {
				t.Errorf("%q does not say %s", b.err, part)
			}
		}
		if stat, ok := c.stands("x"); !ok || stat.Czxid != czxid {
			t.Error("the first was disturbed")
		}
		if !a.View().Joined {
			t.Error("the first is out")
		}
	})
}

func TestPersistentNamesake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		must(t, c.srv.Create(node("x"), nil))
		b := c.join("x")
		<-b.done
		wantErr(t, b.err, party.ErrNameTaken)
		if _, ok := c.stands("x"); !ok {
			t.Error("a foreign znode was deleted")
		}
	})
}

func TestTakesOverFromDeadSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.join("x")
		old := a.joined()
		c.net.Client("x").Freeze()
		s, _ := c.session("second")
		b := c.run(s, party.Options{Name: "x"})
		start := time.Now()
		if czxid := func() int64 {
			v, _ := b.await(timeout+2*tick, "itself", func(v *party.View) bool { return v.Joined })
			m, _ := v.Member("x")
			return m.Czxid
		}(); czxid == old {
			t.Error("took the dead session's znode for its own")
		}
		t.Logf("joined after %v", time.Since(start))
		// The first comes back, sees its name in use, and gives up.
		c.net.Client("x").Heal()
		<-a.done
		wantErr(t, a.err, party.ErrNameTaken)
		if stat, ok := c.stands("x"); !ok || stat.EphemeralOwner != c.sessionOf("second") {
			t.Error("the second was disturbed")
		}
	})
}

// TestPatienceBeginsAnew in a new incarnation: a dead session's time stands
// still, too, while the servers do.
func TestPatienceBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.join("x").joined()
		s, _ := c.session("second")
		b := c.run(s, party.Options{Name: "x"})
		b.awaitNames(time.Second, "x")
		c.net.Client("x").Freeze()
		c.srv.FreezeClock()
		time.Sleep(time.Minute)
		c.srv.Thaw()
		b.await(timeout+2*tick, "itself", func(v *party.View) bool { return v.Joined })
	})
}

// TestPatienceBeginsAnewBehindANewLeader: servers that elect one give all
// sessions their time again, and our own session may live through that.
func TestPatienceBeginsAnewBehindANewLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.join("x").joined()
		s, _ := c.session("second")
		b := c.run(s, party.Options{Name: "x"})
		b.awaitNames(time.Second, "x")
		c.net.Client("x").Freeze()
		time.Sleep(timeout / 2)
		for range 3 {
			c.srv.Down()
			c.srv.Restart(false)
			time.Sleep(timeout / 2)
		}
		b.await(timeout+2*tick, "itself", func(v *party.View) bool { return v.Joined })
		if n := s.Stats().Incarnation; n != 1 {
			t.Errorf("its session is in incarnation %d: the test proves nothing", n)
		}
	})
}

// TestOwnNameAfterExpiry: who holds our name when we come back in a new
// session did not take it from us; it may be dying.
func TestOwnNameAfterExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.join("x")
		a.joined()
		c.net.Client("x").Freeze()
		time.Sleep(timeout + 2*tick)
		s, stop := c.session("other")
		_, err := incarnation(c, s).Create(t.Context(), node("x"), nil, session.Ephemeral)
		must(t, err)
		c.net.Client("x").Heal()
		time.Sleep(timeout)
		stop()
		a.await(5*time.Second, "itself", func(v *party.View) bool { return v.Joined && v.Incarnation.Trusted() })
	})
}

func TestPythonNamesakeReplacesUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, watcher := c.join("x"), c.join("w")
		a.joined()
		old, _ := watcher.awaitNames(time.Second, "w", "x")
		time.Sleep(time.Minute)
		start := time.Now()
		_, stop := c.namesake("x")
		<-a.done
		wantErr(t, a.err, party.ErrNameTaken)
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("noticed after %v", took)
		}
		holder := c.sessionOf("namesake of x")
		if !strings.Contains(a.err.Error(), fmt.Sprintf("0x%x", holder)) {
			t.Errorf("%q does not name session 0x%x", a.err, holder)
		}
		if a.View().Joined {
			t.Error("the last view says that we are a member")
		}
		if stat, ok := c.stands("x"); !ok || stat.EphemeralOwner != holder {
			t.Error("the namesake's znode was touched")
		}
		before, _ := old.Member("x")
		watcher.await(time.Second, "the namesake", func(v *party.View) bool {
			m, ok := v.Member("x")
			return ok && m.Czxid > before.Czxid && m.Session == holder
		})
		must(t, a.Leave(t.Context()))
		stop()
		watcher.awaitNames(time.Second, "w")
	})
}

func TestOperatorDeletesMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b := c.join("a"), c.join("b")
		before := a.joined()
		b.awaitNames(time.Second, "a", "b")
		time.Sleep(time.Minute)
		must(t, c.srv.Delete(node("a")))
		again := func(v *party.View) bool {
			m, ok := v.Member("a")
			return ok && m.Czxid > before
		}
		_, took := b.await(time.Second, "a again", again)
		if took > 100*time.Millisecond {
			t.Errorf("came back after %v", took)
		}
		if view, _ := a.await(time.Second, "itself again", again); !view.Joined {
			t.Error("not joined")
		}
	})
}

func TestOperatorDeletesDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b := c.join("a"), c.join("b")
		before := max(a.joined(), b.joined())
		for _, path := range []string{directory, "/kiel", "/kiel/groups/g"} {
			time.Sleep(time.Minute)
			must(t, c.srv.Delete(path))
			for _, m := range []*member{a, b} {
				_, took := m.await(time.Second, "both again", func(v *party.View) bool {
					return v.Joined && len(v.Members) == 2 && v.Members[0].Czxid > before && v.Members[1].Czxid > before
				})
				if took > 500*time.Millisecond {
					t.Errorf("%s came back after %v", m.Name(), took)
				}
			}
			before = max(a.joined(), b.joined())
		}
	})
}

// TestServerLosesItsData: a wiped server is like a deleted directory.
func TestServerLosesItsData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b := c.join("a"), c.join("b")
		a.joined()
		b.joined()
		c.srv.Restart(true)
		for _, m := range []*member{a, b} {
			m.await(time.Minute, "both again", func(v *party.View) bool {
				return v.Joined && v.Incarnation.Trusted() && len(v.Members) == 2
			})
		}
	})
}

func TestLostReplyOfCreate(t *testing.T) {
	for _, executed := range []bool{true, false} {
		t.Run(fmt.Sprintf("executed=%v", executed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				must(t, c.srv.Create(directory, nil))
				hit := 0
				var after []zktest.Op
				c.srv.SetHook(func(r *zktest.Request) zktest.Action {
					if hit > 0 && strings.HasPrefix(r.Path, directory) {
						after = append(after, r.Op)
					}
					if hit < 3 && r.Path == node("a") && (r.Op == zktest.OpCreate || r.Op == zktest.OpCreate2) {
						hit++
						return zktest.Action{LoseReply: executed, Cut: !executed}
					}
					return zktest.Action{}
				})
				a := c.join("a")
				czxid := a.joined()
				c.unhook()
				if hit == 0 {
					t.Fatal("no reply was lost")
				}
				if executed && hit > 1 {
					t.Errorf("sent %d times", hit)
				}
				if after[0] != zktest.OpSync {
					t.Errorf("looked without a sync: %v", after)
				}
				time.Sleep(time.Minute)
				if stat, ok := c.stands("a"); !ok || stat.Czxid != czxid || stat.EphemeralOwner != c.sessionOf("a") {
					t.Errorf("znode %+v, %v", stat, ok)
				}
				must(t, a.stop())
				if _, ok := c.stands("a"); ok {
					t.Error("the znode was left behind")
				}
			})
		})
	}
}

func TestLostReplyOfDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.join("a")
		a.joined()
		c.srv.LoseReply(1, func(r zktest.Request) bool { return r.Op == zktest.OpDelete })
		must(t, a.Leave(t.Context()))
		if _, ok := c.stands("a"); ok {
			t.Error("the znode stands")
		}
	})
}

func TestNew(t *testing.T) {
	s, err := session.New([]string{"zk"}, session.Options{})
	must(t, err)
	for _, name := range []string{"", "host:4711", "a.b_c-d", strings.Repeat("x", 249)} {
		if _, err := party.New(s, directory, party.Options{Name: name}); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{".", "..", "a/b", "../x", "a\x00", "a\nb", "\x1b[31m", "\u202e", "\uffff", "a\xff", "a b", "é", strings.Repeat("x", 250)} {
		_, err := party.New(s, directory, party.Options{Name: name})
		if !errors.Is(err, session.ErrInvalidName) || strings.ContainsAny(err.Error(), "\x00\n\x1b\u202e\uffff") {
			t.Errorf("%q: got %v", name, err)
		}
	}
	for _, path := range []string{"", "members", "/a/", "/a//b", "/a/../b", "/a\x00"} {
		if _, err := party.New(s, path, party.Options{}); !errors.Is(err, session.ErrInvalidPath) {
			t.Errorf("%q: got %v", path, err)
		}
	}
	_, err = party.New(s, "x", party.Options{Name: "a", Data: make([]byte, 64<<10+1)})
	wantErr(t, err, party.ErrRecordTooLarge)
	wantErr(t, err, session.ErrInvalidPath) // all faults at once
	if _, err := party.New(s, directory, party.Options{Data: []byte("x")}); err == nil {
		t.Error("an observer with a record was accepted")
	}
	if _, err := party.New(nil, directory, party.Options{}); err == nil {
		t.Error("a nil session was accepted")
	}
	p, err := party.New(s, directory, party.Options{Name: "a", Data: make([]byte, 64<<10)})
	must(t, err)
	if p.Path() != directory || p.Name() != "a" || p.View() != nil {
		t.Errorf("got %s, %s, %v", p.Path(), p.Name(), p.View())
	}
	must(t, p.Leave(t.Context())) // nothing to leave
}

func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		o := c.observe()
		view, _ := o.awaitNames(time.Second)
		if view.Joined {
			t.Error("joined without a name")
		}
		a := c.join("a")
		o.awaitNames(time.Second, "a")
		must(t, o.Leave(t.Context()))
		must(t, a.stop())
		o.awaitNames(time.Second)
		must(t, o.stop())
	})
}

func TestRunTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.join("a")
		a.joined()
		wantErr(t, a.Run(t.Context()), party.ErrStarted)
		must(t, a.stop())
		wantErr(t, a.Run(t.Context()), party.ErrStarted)
	})
}

func TestUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		o := c.observe()
		// A slow reader skips, comes to the latest, and ends with Run.
		var seen []uint64
		var last *party.View
		done := make(chan struct{})
		go func() {
			defer close(done)
			for view := range o.Updates(context.WithoutCancel(t.Context())) {
				seen, last = append(seen, view.Version), view
				time.Sleep(20 * time.Second)
			}
		}()
		for i := range 30 {
			m := c.join(fmt.Sprintf("m%02d", i))
			m.joined()
			if i%3 > 0 {
				must(t, m.stop())
			}
			time.Sleep(time.Second)
		}
		newest := o.View()
		time.Sleep(time.Minute)
		if o.View().Version != newest.Version {
			t.Errorf("version %d became %d in calm", newest.Version, o.View().Version)
		}
		must(t, o.stop())
		<-done
		if last.Version != newest.Version || len(last.Members) != 10 || !slices.IsSorted(seen) || len(seen) > 10 {
			t.Errorf("saw versions %v, the newest is %d", seen, newest.Version)
		}
		// Ended before it began.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range o.Updates(ctx) {
			t.Error("a view after the context ended")
		}
		// A late reader gets the last view.
		for view := range o.Updates(t.Context()) {
			if view.Version != newest.Version {
				t.Errorf("version %d", view.Version)
			}
		}
	})
}

func TestUpdatesEndsWithItsContext(t *testing.T) {
	s, err := session.New([]string{"zk"}, session.Options{})
	must(t, err)
	synctest.Test(t, func(t *testing.T) {
		p, err := party.New(s, directory, party.Options{})
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range p.Updates(ctx) {
			t.Error("a view out of nothing")
		}
	})
}
