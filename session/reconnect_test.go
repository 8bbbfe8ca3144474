package session_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestSuspendedIsNotLost(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", nil)
		inc := m.incarnation()
		m.link.Refuse()
		m.link.Cut()
		time.Sleep(timeout / 2)
		if got := m.Stats().State; got != "suspended" || !inc.Trusted() {
			t.Errorf("state %q, trusted %v", got, inc.Trusted())
		}
		m.link.Heal()
		time.Sleep(timeout)
		if got := m.Stats(); got.State != "connected" || got.Reconnects != 1 || got.Incarnation != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// Leaders are elected within about half a second, on busy machines a whole one; the session is to be back at once.
func TestReconnectIsQuick(t *testing.T) {
	for _, outage := range []time.Duration{400 * time.Millisecond, 800 * time.Millisecond} {
		worst := time.Duration(0)
		for range 10 {
			bubble(t, func(t *testing.T, w *world) {
				m := w.start("a", nil)
				inc := m.incarnation()
				time.Sleep(2 * time.Second)
				w.srv.RefuseHandshakes(true)
				w.srv.CutAll()
				var end time.Time
				time.AfterFunc(outage, func() { end = time.Now(); w.srv.RefuseHandshakes(false) })
				noerr.Last(t)(inc.Get(t.Context(), "/"))
				worst = max(worst, time.Since(end))
			})
		}
		t.Logf("servers refuse for %v: answered again at most %v later", outage, worst)
		if worst > 60*time.Millisecond {
			t.Error("too late")
		}
	}
}

// When servers are down for long they are to be left in peace.
func TestReconnectBacksOff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var dials atomic.Int64
		m := w.start("a", func(o *session.Options) {
			dial := o.Dial
			o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				dials.Add(1)
				return dial(ctx, network, address)
			}
		})
		m.incarnation()
		m.link.Refuse()
		m.link.Cut()
		time.Sleep(10 * time.Second)
		first := dials.Swap(0)
		time.Sleep(10 * time.Second)
		t.Logf("dialled %d times in the first ten seconds, %d times in the next", first, dials.Load())
		if first > 80 || dials.Load() > 20 {
			t.Error("too often")
		}
	})
}

func TestExpiry(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", nil)
		inc := m.incarnation()
		_, _, watch, err := inc.ExistsW(t.Context(), "/a")
		noerr.Must(t, err)
		w.srv.KillSession(inc.SessionID())
		elapsed(t, "context", inc.Context().Done(), time.Second)
		wantErr(t, "cause", context.Cause(inc.Context()), session.ErrSessionExpired)
		elapsed(t, "watch", watch.C(), time.Second)
		start := time.Now()
		again := m.incarnation()
		t.Logf("new session after %v", time.Since(start))
		if again.Number() != 2 || again.SessionID() == inc.SessionID() || m.Stats().Expirations != 1 {
			t.Errorf("incarnation %d, %+v", again.Number(), m.Stats())
		}
		_, _, err = inc.Get(t.Context(), "/")
		wantErr(t, "read in the old session", err, session.ErrSessionExpired)
		_, err = inc.Create(t.Context(), "/a", nil, session.Ephemeral)
		wantErr(t, "write in the old session", err, session.ErrSessionExpired)
		if errors.Is(err, session.ErrUncertain) {
			t.Error("a write that was never sent is called uncertain")
		}
		// Again and again, and while it recovers.
		for range 5 {
			inc := m.incarnation()
			w.srv.KillSession(inc.SessionID())
			<-inc.Context().Done()
			for range 10 {
				for _, info := range w.srv.Sessions() {
					w.srv.KillSession(info.ID)
				}
				time.Sleep(7 * time.Millisecond)
			}
		}
		start = time.Now()
		if got := m.incarnation().Number(); got < 7 {
			t.Errorf("incarnation %d", got)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("back after %v", took)
		}
	})
}

// Servers that come back with empty data turn the old client away for as long as it says what it has seen.
func TestServersLoseTheirData(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", func(o *session.Options) { o.Chroot = "/app" })
		inc := m.incarnation()
		for i := range 50 {
			noerr.Last(t)(inc.Create(t.Context(), fmt.Sprintf("/n%d", i), nil, session.Ephemeral))
		}
		start := time.Now()
		w.srv.Restart(true)
		<-inc.Context().Done()
		again := m.incarnation()
		noerr.Must(t, again.EnsurePath(t.Context(), "/rebuilt"))
		took := time.Since(start)
		t.Logf("rebuilt after %v", took)
		if took > timeout+2*time.Second {
			t.Error("too late")
		}
		if got := m.Stats(); got.Replaced != 1 || got.Expirations != 1 || again.SessionID() == inc.SessionID() {
			t.Errorf("%+v", got)
		}
		if _, _, there := w.srv.Get("/app/rebuilt"); !there {
			t.Error("not under the chroot")
		}
	})
}

// A session that just expired is not one that the servers have lost, though its client was turned away for so long that it did
// not say any more what it had seen; nor is the one after a loss counted again.
func TestReplacedCountsLostDataOnly(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", nil)
		for i := range 50 {
			noerr.Last(t)(m.incarnation().Create(t.Context(), fmt.Sprintf("/n%d", i), nil, session.Ephemeral))
		}
		turnAway := func(empty bool) {
			inc := m.incarnation()
			w.srv.RefuseHandshakes(true)
			w.srv.CutAll()
			time.Sleep(3 * timeout)
			if n := len(w.srv.Sessions()); n != 0 {
				t.Fatalf("%d sessions", n)
			}
			if empty {
				w.srv.Restart(true)
			}
			w.srv.RefuseHandshakes(false)
			<-inc.Context().Done()
			m.incarnation()
		}
		for _, c := range []struct {
			lost                  bool
			replaced, expirations uint64
		}{{false, 0, 1}, {false, 0, 2}, {true, 1, 3}, {false, 1, 4}} {
			turnAway(c.lost)
			if got := m.Stats(); got.Replaced != c.replaced || got.Expirations != c.expirations {
				t.Errorf("lost %t: %+v", c.lost, got)
			}
		}
		// A client that is given up leaves no doubts behind.
		inc := m.incarnation()
		m.GiveUp(errors.New("enough"))
		<-inc.Context().Done()
		m.incarnation()
		if got := m.Stats(); got.Replaced != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// Servers may have lost data when the ZooKeeper session is another one, and when they were there and did not let us in for long;
// not when nobody was there.
func TestHistory(t *testing.T) {
	for name, c := range map[string]struct {
		fault, heal       func(w *world)
		length            time.Duration
		same, sameSession bool
	}{
		"cut":                 {func(w *world) { w.srv.CutAll() }, func(*world) {}, time.Second, true, true},
		"silent":              {func(w *world) { w.srv.FreezeClock() }, func(w *world) { w.srv.Thaw() }, timeout / 2, true, true},
		"silent for 2 T":      {func(w *world) { w.srv.FreezeClock() }, func(w *world) { w.srv.Thaw() }, 2 * timeout, false, true},
		"nobody there":        {func(w *world) { w.net.Refuse(); w.srv.Down() }, func(w *world) { w.net.Heal(); w.srv.Restart(false) }, 2 * timeout, true, true},
		"turned away":         {func(w *world) { w.srv.Down() }, func(w *world) { w.srv.Restart(false) }, timeout / 2, true, true},
		"turned away for 2 T": {func(w *world) { w.srv.Down() }, func(w *world) { w.srv.Restart(false) }, 2 * timeout, false, true},
		"data lost":           {func(w *world) { w.srv.Down() }, func(w *world) { w.srv.Restart(true) }, timeout / 2, false, false},
		"expired":             {func(w *world) { w.net.BlackHole(zktest.Both) }, func(w *world) { w.net.Heal() }, 2 * timeout, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				m := w.start("a", nil)
				inc := m.incarnation()
				c.fault(w)
				time.Sleep(c.length)
				c.heal(w)
				time.Sleep(2 * timeout)
				again := m.incarnation()
				if same := again.History() == inc.History(); same != c.same {
					t.Errorf("history %d, then %d", inc.History(), again.History())
				}
				if same := again.SessionID() == inc.SessionID(); same != c.sameSession {
					t.Errorf("same session: %t", same)
				}
				m.link.BlackHole(zktest.Both) // trust ends, the session does not
				time.Sleep(timeout * 9 / 10)
				m.link.Heal()
				time.Sleep(timeout)
				if last := m.incarnation(); last == again || last.SessionID() != again.SessionID() || last.History() != again.History() {
					t.Errorf("history %d in incarnation %d, then %d in %d", again.History(), again.Number(), last.History(), last.Number())
				}
			})
		})
	}
}

func TestOutages(t *testing.T) {
	for name, c := range map[string]struct {
		fault, heal func(w *world)
		length      time.Duration
		sameSession bool
	}{
		"servers down for 2 T": {
			func(w *world) { w.srv.Down() }, func(w *world) { w.srv.Restart(false) }, 2 * timeout, true,
		},
		"quorum lost for 2 T": {
			func(w *world) { w.srv.RefuseHandshakes(true); w.srv.CutAll(); w.srv.FreezeClock() },
			func(w *world) { w.srv.RefuseHandshakes(false); w.srv.Thaw() }, 2 * timeout, true,
		},
		"quorum lost for an hour": {
			func(w *world) { w.srv.RefuseHandshakes(true); w.srv.CutAll(); w.srv.FreezeClock() },
			func(w *world) { w.srv.RefuseHandshakes(false); w.srv.Thaw() }, time.Hour, true,
		},
		"machines down for a minute": {
			func(w *world) { w.net.Refuse(); w.srv.Down() }, func(w *world) { w.srv.Restart(false); w.net.Heal() }, time.Minute, true,
		},
		"member cut off for 2 T": {
			func(w *world) { w.net.Refuse(); w.net.Cut() }, func(w *world) { w.net.Heal() }, 2 * timeout, false,
		},
		"member cut off for an hour": {
			func(w *world) { w.net.Refuse(); w.net.Cut() }, func(w *world) { w.net.Heal() }, time.Hour, false,
		},
		"black hole for an hour": {
			func(w *world) { w.net.BlackHole(zktest.Both) }, func(w *world) { w.net.Heal() }, time.Hour, false,
		},
		"handshakes silent for 2T": {
			func(w *world) { w.srv.SilentHandshakes(true); w.srv.CutAll() },
			func(w *world) { w.srv.SilentHandshakes(false) }, 2 * timeout, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				m := w.start("a", nil)
				inc := m.incarnation()
				time.Sleep(time.Minute) // of peace
				c.fault(w)
				time.Sleep(c.length)
				if inc.Trusted() {
					t.Error("still trusted")
				}
				start := time.Now()
				c.heal(w)
				again := m.incarnation()
				if took := time.Since(start); took > 3*time.Second {
					t.Errorf("back after %v", took)
				}
				if same := again.SessionID() == inc.SessionID(); same != c.sameSession {
					t.Errorf("same session: %v, want %v", same, c.sameSession)
				}
			})
		})
	}
}

func TestSlowNetwork(t *testing.T) {
	for _, c := range []struct{ connect, then time.Duration }{ // round trips
		{200 * time.Millisecond, 200 * time.Millisecond},
		{timeout / 6, timeout / 6},
		{0, timeout/3 - 10*time.Millisecond},
		{timeout/3 - 10*time.Millisecond, timeout/3 - 10*time.Millisecond},
	} {
		bubble(t, func(t *testing.T, w *world) {
			w.net.Delay(c.connect / 2)
			m := w.start("a", nil)
			inc := m.incarnation()
			w.net.Delay(c.then / 2)
			time.Sleep(time.Minute)
			if !inc.Trusted() || m.Stats().Reconnects > 0 {
				t.Errorf("round trip %v: %+v", c.then, m.Stats())
			}
			m.link.Cut()
			time.Sleep(3 * timeout)
			if m.Current() == nil {
				t.Errorf("round trip %v, after a cut: %+v", c.then, m.Stats())
			}
		})
	}
}

// A server that answers a connect request with somebody else's session is not believed.
func TestAnotherSession(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var connects atomic.Int32
		m := w.start("a", func(o *session.Options) {
			o.Dial = mitm(o.Dial, nil, func(b []byte) {
				if connects.Add(1) == 2 {
					b[19]++ // the id's last byte
				}
			})
		})
		inc := m.incarnation()
		id := inc.SessionID()
		m.link.Cut()
		time.Sleep(timeout / 2)
		got := m.Stats()
		if got.SessionID != id || inc.SessionID() != id {
			t.Errorf("it goes on in session %x, not its own %x", got.SessionID, id)
		}
		if got.BadFrames != 1 || !inc.Trusted() {
			t.Errorf("%+v", got)
		}
	})
}

// One server accepts connections and says nothing. The other one is reached within the cap.
func TestSilentServer(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		silent, err := w.net.Listen("silent:2181")
		noerr.Must(t, err)
		defer silent.Close()
		go func() {
			for {
				conn, err := silent.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
			}
		}()
		worst := time.Duration(0)
		for i := range 10 {
			name := fmt.Sprint("m", i)
			s, err := session.New([]string{"silent:2181", "zk:2181"}, session.Options{Timeout: timeout, Dial: w.net.Client(name).Dial})
			noerr.Must(t, err)
			start := time.Now()
			m := run(t, s, w.net.Client(name))
			m.incarnation()
			worst = max(worst, time.Since(start))
			for range 3 {
				start = time.Now()
				m.link.Cut()
				noerr.Last(t)(m.incarnation().Get(t.Context(), "/"))
				worst = max(worst, time.Since(start))
				time.Sleep(2 * time.Second)
			}
			noerr.Want(t, m.stop())
		}
		t.Logf("longest way past a silent server %v", worst)
		if worst > 1200*time.Millisecond {
			t.Error("too long")
		}
	})
}

// A first handshake that breaks off between the connect reply and the answer to the credentials leaves a session that nobody
// knows. The next one gets another session, and that is no reason to turn its servers away.
func TestFirstHandshakeBreaksOff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var cuts atomic.Int32
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			return zktest.Action{Cut: r.Op == zktest.OpAuth && cuts.Add(1) <= 3}
		})
		m := w.start("a", func(o *session.Options) { o.Auth = digest("ann", "x") })
		inc := m.incarnation()
		time.Sleep(10 * timeout)
		if stats := m.Stats(); !inc.Trusted() || stats.SessionID != inc.SessionID() || stats.BadFrames != 0 || cuts.Load() < 4 {
			t.Errorf("trusted %v, %d handshakes, %+v", inc.Trusted(), cuts.Load(), stats)
		}
		if _, err := inc.Create(t.Context(), "/e", nil, session.Ephemeral); err != nil {
			t.Error(err)
		}
		if _, stat, there := w.srv.Get("/e"); !there || stat.EphemeralOwner != inc.SessionID() {
			t.Errorf("made by session 0x%x, not 0x%x", stat.EphemeralOwner, inc.SessionID())
		}
	})
}
