package party_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
)

func TestNameTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.join("x")
		czxid := a.joined()
		s, _ := c.session("second")
		b := c.run(s, party.Options{Name: "x", Logger: logger(t)})
		start := time.Now()
		const longest = 40 * time.Second // that servers grant
		says := func(err error, parts ...string) {
			for _, part := range append(parts, node("x"), fmt.Sprintf("0x%x", c.sessionOf("x"))) {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("%v does not say %s", err, part)
				}
			}
		}
		first, _ := b.await(time.Second, "x", func(v *party.View) bool { return len(v.Members) == 1 })
		wantErr(t, first.NameHeld, party.ErrNameHeld)
		says(first.NameHeld, start.Add(longest+tick).UTC().Format(time.RFC3339))
		for view := range b.Updates(t.Context()) {
			if view.Joined {
				t.Errorf("joined under a name that is taken: %s", show(view))
			}
		}
		<-b.done
		wantErr(t, b.err, party.ErrNameTaken)
		if took := time.Since(start); took < longest+tick || took > longest+tick+time.Second {
			t.Errorf("took %v", took)
		}
		says(b.err)
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
		b := c.secondOf("x")
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
		b := c.secondOf("x")
		c.net.Client("x").Freeze()
		time.Sleep(timeout / 2)
		for begun := time.Now(); time.Since(begun) < b.session.MaxExpiry(); time.Sleep(timeout / 2) {
			c.srv.Down()
			c.srv.Restart(false)
		}
		b.await(timeout+2*tick, "itself", func(v *party.View) bool { return v.Joined })
		if n := b.session.Stats().Incarnation; n != 1 {
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

// TestRestartWithALowerTimeout waits for as long as the session from before the crash was granted.
func TestRestartWithALowerTimeout(t *testing.T) {
	for _, before := range []time.Duration{30 * time.Second, 40 * time.Second} { // the latter is the most that servers grant
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			s, _ := c.sessionWith("x", session.Options{Timeout: before})
			old := c.run(s, party.Options{Name: "x"}).joined()
			time.Sleep(time.Minute)
			c.net.Client("x").Freeze()
			start := time.Now()
			s, _ = c.sessionWith("restarted", session.Options{Timeout: 5 * time.Second})
			b := c.run(s, party.Options{Name: "x"})
			select {
			case <-time.After(before + 2*tick):
			case <-b.done:
				t.Fatalf("ended after %v: %v", time.Since(start), b.err)
			}
			if b.View().NameHeld != nil {
				t.Errorf("its view still says %v", b.View().NameHeld)
			}
			if stat, _ := c.stands("x"); stat.Czxid <= old || stat.EphemeralOwner != c.sessionOf("restarted") || !b.View().Joined {
				t.Errorf("not joined %v after a crash with a timeout of %v: %s", time.Since(start), before, show(b.View()))
			}
			c.net.Client("x").Heal()
		})
	}
}
