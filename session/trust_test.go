package session_test

import (
	"context"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/clocks"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestProofsOfLife(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		inc := w.start("a", nil).incarnation()
		var sent []time.Time
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpMulti {
				if len(r.Ops) != 1 || r.Ops[0].Op != zktest.OpCheck || r.Ops[0].Version != -1 || r.Ops[0].Path != "/" {
					t.Errorf("a proof is %+v", r)
				}
				sent = append(sent, time.Now())
			}
			return zktest.Action{}
		})
		zxid := w.srv.Stats().Zxid
		time.Sleep(10 * timeout)
		w.srv.SetHook(nil)
		synctest.Wait()
		if n := len(sent); n < 59 || n > 61 {
			t.Errorf("%d proofs in 10 T", n)
		}
		for i := range len(sent) - 1 {
			if gap := sent[i+1].Sub(sent[i]); gap > timeout/6 {
				t.Errorf("%v between proofs, T/6 is %v", gap, timeout/6)
			}
		}
		if !inc.Trusted() || inc.Number() != 1 || inc.Context().Err() != nil {
			t.Error("not trusted any more")
		}
		if w.srv.Stats().Zxid == zxid {
			t.Error("the proofs are not writes")
		}
		if end := time.Until(inc.TrustEnd()); end < timeout/2 || end > 2*timeout/3 {
			t.Errorf("trust ends in %v", end)
		}
	})
}

// One server answers reads but no proofs, as a follower that was cut off. While trust lasts the session finds another.
func TestLeavesAServerThatProvesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", nil)
		inc := m.incarnation()
		time.Sleep(timeout)
		first := true
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpConnect {
				first = false // from now on it is another server
			}
			return zktest.Action{Ignore: first && r.Op == zktest.OpMulti}
		})
		time.Sleep(2 * timeout)
		if got := m.Stats(); !inc.Trusted() || got.Reconnects != 1 || got.TrustLosses != 0 {
			t.Errorf("trusted %v, %+v", inc.Trusted(), got)
		}
	})
}

// The server goes on answering all but writes, as a leader that was deposed and does not know.
func TestReadsAreNoProof(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", nil)
		inc := m.incarnation()
		time.Sleep(timeout)
		proofsFail(w, true)
		reads := 0
		start := time.Now()
		for inc.Trusted() {
			noerr.Must(t, inc.Sync(t.Context(), "/"))
			reads++
			time.Sleep(50 * time.Millisecond)
			if time.Since(start) > timeout {
				t.Fatal("still trusted after T, by Sync alone")
			}
		}
		if took := time.Since(start); took > 2*timeout/3+50*time.Millisecond {
			t.Errorf("trusted for %v", took)
		}
		<-inc.Context().Done()
		wantErr(t, "cause", context.Cause(inc.Context()), session.ErrTrustLost)
		t.Logf("%d Syncs answered, trust ended after %v", reads, inc.TrustEnd().Sub(start))
		if m.Stats().State != "lost" || m.Current() != nil {
			t.Errorf("state %q", m.Stats().State)
		}

		proofsFail(w, false)
		again := m.incarnation()
		if again.Number() != 2 || again.SessionID() != inc.SessionID() {
			t.Errorf("incarnation %d in session %x, want 2 in %x", again.Number(), again.SessionID(), inc.SessionID())
		}
		if inc.Trusted() || inc.Context().Err() == nil {
			t.Error("the old incarnation is trusted again")
		}
		// The old incarnation may still clean up.
		if _, err := inc.Create(t.Context(), "/x", nil, session.Ephemeral); err != nil {
			t.Error(err)
		}
	})
}

// The moment that TrustedAt judges is that of a clock which goes on by itself, and none is told once trust has ended.
func TestTrustedAt(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		inc := w.start("a", nil).incarnation()
		first, trusted := inc.TrustedAt()
		time.Sleep(time.Second)
		if at, still := inc.TrustedAt(); !trusted || !still || at-first != time.Second {
			t.Errorf("%v, %v and after a second %v, %v", first, trusted, at, still)
		}
		proofsFail(w, true)
		time.Sleep(timeout)
		if at, still := inc.TrustedAt(); still || at != 0 {
			t.Errorf("after the end of trust: %v, %v", at, still)
		}
	})
}

// Trust ends before the server ends the session, wherever the cut falls between two proofs and two ticks.
func TestBlackHole(t *testing.T) {
	worst := time.Hour
	for step := range 12 {
		bubble(t, func(t *testing.T, w *world) {
			m := w.start("a", nil)
			inc := m.incarnation()
			noerr.Last(t)(inc.Create(t.Context(), "/e", nil, session.Ephemeral))
			time.Sleep(timeout + time.Duration(step)*timeout/72)
			m.link.BlackHole(zktest.Both)
			<-inc.Context().Done()
			ended := time.Now()
			if off := ended.Sub(inc.TrustEnd()).Abs(); off > time.Millisecond {
				t.Errorf("context ended %v off trust", off)
			}
			if _, _, there := w.srv.Get("/e"); !there {
				t.Error("the ephemeral went before trust did")
			}
			for there := true; there; _, _, there = w.srv.Get("/e") {
				time.Sleep(10 * time.Millisecond)
			}
			worst = min(worst, time.Since(ended))
			m.link.Heal()
			again := m.incarnation()
			if again.SessionID() == inc.SessionID() {
				t.Error("same session")
			}
			wantErr(t, "operation of the old session", inc.Delete(t.Context(), "/e", -1), session.ErrSessionExpired)
		})
	}
	t.Logf("smallest margin between the end of trust and of the ephemeral: %v at T = %v", worst, timeout)
	if worst < timeout/6 {
		t.Error("margin too small")
	}
}

// After an outage in the same ZooKeeper session the first proof counts from a sign of life before it, and gives little trust.
// Nothing is begun that would end before the next proof is answered.
func TestTrustAfterAnOutageLasts(t *testing.T) {
	for step := range 12 {
		bubble(t, func(t *testing.T, w *world) {
			w.net.Delay(5 * time.Millisecond)
			begun := time.Now()
			m := w.start("a", nil)
			inc := m.incarnation()
			if took := time.Since(begun); took > 100*time.Millisecond {
				t.Errorf("step %d: trusted %v after the start", step, took)
			}
			time.Sleep(2 * timeout)
			m.link.Refuse()
			m.link.Cut()
			<-inc.Context().Done()
			time.Sleep(time.Duration(step) * timeout / 120)
			m.link.Heal()
			healed := time.Now()
			again := m.incarnation()
			took := time.Since(healed)
			if again.SessionID() != inc.SessionID() {
				t.Fatalf("step %d: another session; this test tests nothing", step)
			}
			if took > time.Second+timeout/6+100*time.Millisecond { // the longest back-off, and from one proof to the next
				t.Errorf("step %d: trusted again after %v", step, took)
			}
			if left := time.Until(again.TrustEnd()); left < timeout/4 {
				t.Errorf("step %d: begun with %v of trust", step, left)
			}
			time.Sleep(2 * timeout)
			if stats := m.Stats(); !again.Trusted() || stats.TrustLosses != 1 || stats.Incarnation != 2 {
				t.Errorf("step %d: trusted %v, %+v", step, again.Trusted(), stats)
			}
		})
	}
}

// mitm passes connections on and lets a test look at, and change, the connect request and reply.
func mitm(dial func(context.Context, string, string) (net.Conn, error), request, reply func([]byte)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &mitmConn{Conn: conn, request: request, reply: reply}, nil
	}
}

type mitmConn struct {
	net.Conn
	request, reply func([]byte)
	wrote, read    bool
}

func (c *mitmConn) Write(b []byte) (int, error) {
	if !c.wrote && c.request != nil {
		c.request(b)
	}
	c.wrote = true
	return c.Conn.Write(b)
}

func (c *mitmConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.read && err == nil && c.reply != nil {
		if n < 40 {
			panic("connect reply in pieces")
		}
		c.reply(b[:n])
	}
	c.read = true
	return n, err
}

// The granted timeout changes; we go on asking for the configured one.
func TestTimeoutChanges(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		granted, asked := []byte{0, 0, 0x17, 0x70}, [][]byte(nil) // 6000
		m := w.start("a", func(o *session.Options) {
			o.Timeout = 8 * time.Second
			o.Dial = mitm(o.Dial,
				func(b []byte) { asked = append(asked, slices.Clone(b[16:20])) },
				func(b []byte) { copy(b[8:12], granted) })
		})
		inc := m.incarnation()
		if inc.Timeout() != 6*time.Second || m.Timeout() != 6*time.Second {
			t.Errorf("granted 6 s, but Timeout says %v and %v", inc.Timeout(), m.Timeout())
		}
		time.Sleep(10 * time.Second)
		granted = []byte{0, 0, 0x0f, 0xa0} // 4000
		m.link.Cut()
		time.Sleep(3 * time.Second)
		if inc.Timeout() != 4*time.Second || m.Timeout() != 4*time.Second || m.Stats().TimeoutChanges != 1 {
			t.Errorf("granted 4 s, but Timeout says %v and %v; %+v", inc.Timeout(), m.Timeout(), m.Stats())
		}
		if left := time.Until(inc.TrustEnd()); left > 2667*time.Millisecond {
			t.Errorf("trusted for %v more", left)
		}
		if !inc.Trusted() {
			t.Error("the change ended trust")
		}
		for _, b := range asked {
			if !slices.Equal(b, []byte{0, 0, 0x1f, 0x40}) { // 8000
				t.Errorf("asked for % x", b)
			}
		}
		if len(asked) != 2 {
			t.Errorf("%d connect requests", len(asked))
		}
	})
}

// While a connect request is unanswered, the leader may count with the smallest timeout there is.
func TestUnansweredConnectRequest(t *testing.T) {
	bubbleOpts(t, zktest.Options{TickTime: tick, MaxSessionTimeout: 40 * time.Second}, func(t *testing.T, w *world) {
		m := w.start("a", func(o *session.Options) { o.Timeout = 30 * time.Second })
		inc := m.incarnation()
		time.Sleep(time.Minute)
		if left := time.Until(inc.TrustEnd()); left < 15*time.Second {
			t.Fatalf("trusted for %v only", left)
		}
		w.srv.SilentHandshakes(true)
		w.net.Refuse()
		w.net.Cut()
		time.Sleep(time.Second)
		w.net.Heal()
		start := time.Now()
		<-inc.Context().Done()
		if took := time.Since(start); took > 4500*time.Millisecond || took < 4*time.Second {
			t.Errorf("trusted for %v after the connect request, want 2/3 of 6 s", took)
		}
	})
}

func TestClockJumps(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		start, jump := time.Now(), atomic.Int64{}
		link := w.net.Client("a")
		s, err := session.New([]string{"zk:2181"}, session.Options{Timeout: timeout, Dial: link.Dial})
		noerr.Must(t, err)
		session.SetClock(s, func() (mono, wall time.Duration) {
			passed := time.Since(start)
			return passed, passed + time.Duration(jump.Load())
		})
		m := run(t, s, link)
		inc := m.incarnation()
		time.Sleep(timeout)
		synctest.Wait()

		jump.Store(int64(-time.Hour))
		time.Sleep(10 * timeout)
		if !inc.Trusted() {
			t.Error("a jump back ended trust")
		}
		m.link.BlackHole(zktest.Both)
		begun := time.Now()
		<-inc.Context().Done()
		if took := time.Since(begun); took > 2*timeout/3 {
			t.Errorf("after a jump back trusted for %v", took)
		}
		m.link.Heal()
		inc = m.incarnation()
		time.Sleep(timeout)
		synctest.Wait()

		jump.Store(int64(time.Hour))
		if inc.Trusted() {
			t.Error("trusted after a jump ahead")
		}
		<-inc.Context().Done()
		wantErr(t, "cause", context.Cause(inc.Context()), session.ErrTrustLost)
		begun = time.Now()
		m.incarnation()
		if took := time.Since(begun); took > timeout/2 {
			t.Errorf("trusted again after %v", took)
		}
	})
}

// onWallClock runs a test in a bubble, on an incarnation whose clock is the context's: its wall clock is ahead by jump.
func onWallClock(t *testing.T, test func(t *testing.T, inc *session.Incarnation, jump *atomic.Int64)) {
	t.Helper()
	bubble(t, func(t *testing.T, w *world) {
		start, jump := time.Now(), new(atomic.Int64)
		s, err := session.New([]string{"zk:2181"}, session.Options{Timeout: timeout, Dial: w.net.Client("a").Dial})
		noerr.Must(t, err)
		ctx, stop := context.WithCancel(clocks.With(t.Context(), func() (mono, wall time.Duration) {
			passed := time.Since(start)
			return passed, passed + time.Duration(jump.Load())
		}))
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		inc, err := s.Incarnation(ctx)
		noerr.Must(t, err)
		test(t, inc, jump)
		stop()
		wantErr(t, "Run", <-done, nil)
	})
}

func TestClockOfTheContext(t *testing.T) {
	onWallClock(t, func(t *testing.T, inc *session.Incarnation, jump *atomic.Int64) {
		if !inc.Trusted() {
			t.Error("not trusted")
		}
		jump.Store(int64(time.Hour))
		if inc.Trusted() {
			t.Error("trusted after a jump of the context's clock")
		}
	})
}

// The clock of the context is made steady too: a wall clock that was set back does not hide a suspension that comes after.
func TestSuspendedAfterTheClockWasSetBack(t *testing.T) {
	onWallClock(t, func(t *testing.T, inc *session.Incarnation, jump *atomic.Int64) {
		jump.Add(int64(-time.Hour))
		if !inc.Trusted() {
			t.Error("not trusted after the clock was set back")
		}
		jump.Add(int64(timeout)) // the monotonic clock stands still meanwhile
		if inc.Trusted() {
			t.Error("trusted after a suspension of T")
		}
	})
}
