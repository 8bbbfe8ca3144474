package party_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
)

func TestNameTaken(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.join("x")
		czxid := a.joined()
		b := w.second("x")
		start := time.Now()
		const longest = 40 * time.Second // that servers grant
		says := func(err error, parts ...string) {
			for _, part := range append(parts, node("x"), fmt.Sprintf("0x%x", w.sessionOf("x"))) {
				if err == nil || !strings.Contains(err.Error(), part) {
					w.Errorf("%v does not say %s", err, part)
				}
			}
		}
		first, _ := b.await(time.Second, "x", func(v *party.View) bool { return len(v.Members) == 1 })
		wantErr(w, first.NameHeld, party.ErrNameHeld)
		says(first.NameHeld, start.Add(longest+tick).UTC().Format(time.RFC3339))
		for view := range b.Updates(w.Context()) {
			if view.Joined {
				w.Errorf("joined under a name that is taken: %s", show(view))
			}
		}
		<-b.done
		wantErr(w, b.err, party.ErrNameTaken)
		if took := time.Since(start); took < longest+tick || took > longest+tick+time.Second {
			w.Errorf("took %v", took)
		}
		says(b.err)
		if stat, ok := w.stands("x"); !ok || stat.Czxid != czxid {
			w.Error("the first was disturbed")
		}
		if !a.View().Joined {
			w.Error("the first is out")
		}
	})
}

func TestPersistentNamesake(t *testing.T) {
	inWorld(t, func(w *world) {
		must(w, w.Srv.Create(node("x"), nil))
		b := w.join("x")
		<-b.done
		wantErr(w, b.err, party.ErrNameTaken)
		if _, ok := w.stands("x"); !ok {
			w.Error("a foreign znode was deleted")
		}
	})
}

func TestTakesOverFromDeadSession(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.join("x")
		old := a.joined()
		w.Net.Client("x").Freeze()
		b := w.second("x")
		start := time.Now()
		if czxid := func() int64 {
			v, _ := b.await(timeout+2*tick, "itself", func(v *party.View) bool { return v.Joined })
			m, _ := v.Member("x")
			return m.Czxid
		}(); czxid == old {
			w.Error("took the dead session's znode for its own")
		}
		w.Logf("joined after %v", time.Since(start))
		// The first comes back, sees its name in use, and gives up.
		w.Net.Client("x").Heal()
		<-a.done
		wantErr(w, a.err, party.ErrNameTaken)
		if stat, ok := w.stands("x"); !ok || stat.EphemeralOwner != w.sessionOf("second") {
			w.Error("the second was disturbed")
		}
	})
}

// TestPatienceBeginsAnew in a new incarnation: a dead session's time stands still, too, while the servers do.
func TestPatienceBeginsAnew(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.secondOf("x")
		w.Net.Client("x").Freeze()
		w.Srv.FreezeClock()
		time.Sleep(time.Minute)
		w.Srv.Thaw()
		b.await(timeout+2*tick, "itself", func(v *party.View) bool { return v.Joined })
	})
}

// TestPatienceBeginsAnewBehindANewLeader: servers that elect one give all sessions their time again, and our own session may live
// through that.
func TestPatienceBeginsAnewBehindANewLeader(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.secondOf("x")
		w.Net.Client("x").Freeze()
		time.Sleep(timeout / 2)
		for begun := time.Now(); time.Since(begun) < b.session.MaxExpiry(); time.Sleep(timeout / 2) {
			w.Srv.Down()
			w.Srv.Restart(false)
		}
		b.await(timeout+2*tick, "itself", func(v *party.View) bool { return v.Joined })
		if n := b.session.Stats().Incarnation; n != 1 {
			w.Errorf("its session is in incarnation %d: the test proves nothing", n)
		}
	})
}

// Patience begins anew in a new ZooKeeper session, too, which no reconnect shows: the servers have stood still, and the session
// that holds the name has its time again.
func TestPatienceBeginsAnewInANewSession(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.secondOf("x")
		reconnects := b.session.Stats().Reconnects
		w.Net.Client("x").Freeze()
		w.Srv.FreezeClock()
		time.Sleep(time.Minute)
		w.Srv.KillSession(w.sessionOf("second"))
		w.Srv.Thaw()
		b.await(2*timeout, "itself", func(v *party.View) bool { return v.Joined })
		if s := b.session.Stats(); s.Incarnation != 2 || s.Reconnects != reconnects {
			w.Errorf("incarnation %d and %d reconnects: the test proves nothing", s.Incarnation, s.Reconnects-reconnects)
		}
	})
}

// TestOwnNameAfterExpiry: who holds our name when we come back in a new session did not take it from us; it may be dying.
func TestOwnNameAfterExpiry(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.member("x")
		w.Net.Client("x").Freeze()
		time.Sleep(timeout + 2*tick)
		stop := w.hold("other", node("x"), "")
		w.Net.Client("x").Heal()
		time.Sleep(timeout)
		stop()
		a.await(5*time.Second, "itself", func(v *party.View) bool { return v.Joined && v.Incarnation.Trusted() })
	})
}

func TestPythonNamesakeReplacesUs(t *testing.T) {
	inWorld(t, func(w *world) {
		a, watcher := w.join("x"), w.join("w")
		a.joined()
		old, _ := watcher.awaitNames(time.Second, "w", "x")
		time.Sleep(time.Minute)
		start := time.Now()
		_, stop := w.namesake("x")
		<-a.done
		wantErr(w, a.err, party.ErrNameTaken)
		if took := time.Since(start); took > 100*time.Millisecond {
			w.Errorf("noticed after %v", took)
		}
		holder := w.sessionOf("namesake of x")
		if !strings.Contains(a.err.Error(), fmt.Sprintf("0x%x", holder)) {
			w.Errorf("%q does not name session 0x%x", a.err, holder)
		}
		if a.View().Joined {
			w.Error("the last view says that we are a member")
		}
		if stat, ok := w.stands("x"); !ok || stat.EphemeralOwner != holder {
			w.Error("the namesake's znode was touched")
		}
		before, _ := old.Member("x")
		watcher.await(time.Second, "the namesake", func(v *party.View) bool {
			m, ok := v.Member("x")
			return ok && m.Czxid > before.Czxid && m.Session == holder
		})
		must(w, a.Leave(w.Context()))
		stop()
		watcher.awaitNames(time.Second, "w")
	})
}

// TestRestartWithALowerTimeout waits for as long as the session from before the crash was granted.
func TestRestartWithALowerTimeout(t *testing.T) {
	for _, before := range []time.Duration{30 * time.Second, 40 * time.Second} { // the latter is the most that servers grant
		inWorld(t, func(w *world) {
			s, _ := w.stoppable("x", session.Options{Timeout: before})
			old := w.run(s, party.Options{Name: "x"}).joined()
			time.Sleep(time.Minute)
			w.Net.Client("x").Freeze()
			start := time.Now()
			s, _ = w.stoppable("restarted", session.Options{Timeout: 5 * time.Second})
			b := w.run(s, party.Options{Name: "x"})
			select {
			case <-time.After(before + 2*tick):
			case <-b.done:
				w.Fatalf("ended after %v: %v", time.Since(start), b.err)
			}
			if b.View().NameHeld != nil {
				w.Errorf("its view still says %v", b.View().NameHeld)
			}
			if stat, _ := w.stands("x"); stat.Czxid <= old || stat.EphemeralOwner != w.sessionOf("restarted") || !b.View().Joined {
				w.Errorf("not joined %v after a crash with a timeout of %v: %s", time.Since(start), before, show(b.View()))
			}
			w.Net.Client("x").Heal()
		})
	}
}
