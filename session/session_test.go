package session_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

// The server goes on answering all but writes, as a leader that was deposed and does not know (attack 1), or a follower
// that was cut off.
func TestReadsAreNoProof(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", nil)
		inc := m.incarnation()
		time.Sleep(timeout)
		proofsFail(w, true)
		reads := 0
		start := time.Now()
		for inc.Trusted() {
			if err := inc.Sync(t.Context(), "/"); err != nil {
				t.Fatal(err)
			}
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
		// What the old incarnation may still do is to clean up.
		if _, err := inc.Create(t.Context(), "/x", nil, session.Ephemeral); err != nil {
			t.Error(err)
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
			if _, err := inc.Create(t.Context(), "/e", nil, session.Ephemeral); err != nil {
				t.Fatal(err)
			}
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

// Leaders are elected within about half a second; the session is to be back soon after.
func TestReconnectIsQuick(t *testing.T) {
	worst := time.Duration(0)
	for range 10 {
		bubble(t, func(t *testing.T, w *world) {
			m := w.start("a", nil)
			inc := m.incarnation()
			time.Sleep(2 * time.Second)
			start := time.Now()
			w.srv.RefuseHandshakes(true)
			w.srv.CutAll()
			time.AfterFunc(400*time.Millisecond, func() { w.srv.RefuseHandshakes(false) })
			if _, _, err := inc.Get(t.Context(), "/"); err != nil {
				t.Fatal(err)
			}
			worst = max(worst, time.Since(start))
		})
	}
	t.Logf("longest gap %v when servers refuse for 400 ms", worst)
	if worst > 600*time.Millisecond {
		t.Error("too long")
	}
}

func TestExpiry(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", nil)
		inc := m.incarnation()
		_, _, watch, err := inc.ExistsW(t.Context(), "/a")
		if err != nil {
			t.Fatal(err)
		}
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

// Attack 2: requests that wait while the link is down must not run in the next session.
func TestRequestsDieWithTheirSession(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		// Run is late to notice the expiry, so that the old client has all the time it wants to go on.
		m := w.start("a", func(o *session.Options) { o.Logger = slog.New(slowHandler{o.Logger.Handler()}) })
		inc := m.incarnation()
		if _, err := inc.Create(t.Context(), "/claim", nil, session.Ephemeral); err != nil {
			t.Fatal(err)
		}
		m.link.Refuse()
		m.link.Cut()
		synctest.Wait() // until the client knows
		ours, raw := make(chan error, 1), make(chan error, 1)
		go func() { ours <- inc.Delete(t.Context(), "/claim", -1) }()
		go func() { raw <- session.Raw(inc).Delete("/claim", -1) }() // past our own gate, into go-zookeeper's queue
		synctest.Wait()
		w.srv.KillSession(inc.SessionID())
		if err := w.srv.Create("/claim", []byte("another's")); err != nil {
			t.Fatal(err)
		}
		m.link.Heal()
		again := m.incarnation()
		err := <-ours
		wantErr(t, "queued Delete", err, session.ErrSessionExpired)
		if errors.Is(err, session.ErrUncertain) {
			t.Error("it was never sent")
		}
		if err := <-raw; err == nil {
			t.Error("a request queued in the old session ran in the new one")
		}
		if _, _, there := w.srv.Get("/claim"); !there {
			t.Errorf("another's claim is gone, session %x deleted it", again.SessionID())
		}
	})
}

// slowHandler takes 5 s to log that a session expired.
type slowHandler struct{ slog.Handler }

func (h slowHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "session expired" {
		time.Sleep(5 * time.Second)
	}
	return h.Handler.Handle(ctx, r)
}

func (h slowHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return slowHandler{h.Handler.WithAttrs(attrs)}
}

// Attack 3: what a caller gave up on may still happen, and is said to.
func TestCallerGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", nil)
		inc := m.incarnation()
		m.link.Delay(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := inc.Create(ctx, "/a", nil, session.Ephemeral)
		wantErr(t, "Create", err, session.ErrUncertain)
		wantErr(t, "Create", err, context.DeadlineExceeded)
		if used, _ := inc.EphemeralBytes(); used != len("/a")+4 {
			t.Errorf("what may exist takes %d bytes of the budget", used)
		}
		m.link.Delay(0)
		time.Sleep(2 * time.Second)
		if _, stat, there := w.srv.Get("/a"); !there || stat.EphemeralOwner != inc.SessionID() {
			t.Error("the request that was sent did not happen; this test tests nothing")
		}
		if err := inc.Delete(t.Context(), "/a", -1); err != nil {
			t.Fatal(err)
		}
		if used, _ := inc.EphemeralBytes(); used != 0 {
			t.Errorf("%d bytes in use", used)
		}

		// With the link down nothing is sent, so nothing is uncertain.
		m.link.Refuse()
		m.link.Cut()
		synctest.Wait()
		ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err = inc.Create(ctx, "/b", nil, session.Ephemeral)
		wantErr(t, "Create", err, context.DeadlineExceeded)
		if errors.Is(err, session.ErrUncertain) {
			t.Error("nothing was sent, but the outcome is called uncertain")
		}
		m.link.Heal()
		time.Sleep(time.Second)
		if _, _, there := w.srv.Get("/b"); there {
			t.Error("what was given up before it was sent happened")
		}
	})
}

func TestLostReplies(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		inc := w.start("a", nil).incarnation()
		lose := func(op zktest.Op) {
			w.srv.LoseReply(1, func(r zktest.Request) bool { return r.Op == op })
		}
		lose(zktest.OpCreate)
		_, err := inc.Create(ctx, "/a", nil, session.Ephemeral)
		wantErr(t, "Create", err, session.ErrUncertain)
		found, stat, err := inc.Exists(ctx, "/a")
		if err != nil || !found || stat.EphemeralOwner != inc.SessionID() {
			t.Errorf("%v, %+v, %v", found, stat, err)
		}
		lose(zktest.OpSetData)
		_, err = inc.Set(ctx, "/a", nil, 0)
		wantErr(t, "Set", err, session.ErrUncertain)
		lose(zktest.OpMulti)
		time.Sleep(timeout) // that hits a proof
		if !inc.Trusted() {
			t.Error("one lost proof ended trust")
		}
		lose(zktest.OpDelete)
		wantErr(t, "Delete", inc.Delete(ctx, "/a", -1), session.ErrUncertain)
		for _, op := range []zktest.Op{zktest.OpGetData, zktest.OpExists, zktest.OpGetChildren2, zktest.OpSync, zktest.OpGetACL} {
			lose(op)
		}
		lose(zktest.OpGetData)
		if _, _, err := inc.Get(ctx, "/"); err != nil {
			t.Errorf("a read whose reply was lost: %v", err)
		}
		lose(zktest.OpSync)
		if err := inc.Sync(ctx, "/"); err != nil {
			t.Errorf("a sync whose reply was lost: %v", err)
		}
	})
}

// The server's codes that go-zookeeper does not know, and those that we treat in some way of our own.
func TestErrorCodes(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		inc := w.start("a", nil).incarnation()
		for code, c := range map[zktest.Error]struct {
			read, write error // nil: it is repeated and succeeds
		}{
			-1:   {session.ErrServer, session.ErrUncertain},
			-2:   {session.ErrRolledBack, session.ErrRolledBack},
			-4:   {nil, session.ErrUncertain},
			-7:   {nil, session.ErrUncertain},
			-102: {session.ErrNoAuth, session.ErrNoAuth},
			-103: {session.ErrBadVersion, session.ErrBadVersion},
			-114: {session.ErrInvalidACL, session.ErrInvalidACL},
			-115: {session.ErrAuthFailed, session.ErrAuthFailed},
			-118: {nil, nil},
			-122: {nil, session.ErrUncertain},
			-124: {session.ErrAuthFailed, session.ErrAuthFailed},
			-125: {session.ErrQuotaExceeded, session.ErrQuotaExceeded},
			-127: {nil, nil},
			-77:  {session.ErrServer, session.ErrServer},
		} {
			times := 0
			w.srv.SetHook(func(r *zktest.Request) zktest.Action {
				if times == 0 && (r.Op == zktest.OpGetData || r.Op == zktest.OpSetData) {
					times++
					return zktest.Action{Err: code}
				}
				return zktest.Action{}
			})
			if _, _, err := inc.Get(t.Context(), "/"); !errors.Is(err, c.read) {
				t.Errorf("Get with code %d: %v, want %v", code, err, c.read)
			}
			times = 0
			if _, err := inc.Set(t.Context(), "/", nil, -1); !errors.Is(err, c.write) {
				t.Errorf("Set with code %d: %v, want %v", code, err, c.write)
			}
		}
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpGetData {
				return zktest.Action{Err: -112}
			}
			return zktest.Action{}
		})
		_, _, err := inc.Get(t.Context(), "/")
		wantErr(t, "Get with code -112", err, session.ErrSessionExpired)
		elapsed(t, "context", inc.Context().Done(), time.Second)
	})
}

func TestGiveUp(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", nil)
		m.GiveUp(nil) // nothing to give up yet, or the first session; either is fine
		inc := m.incarnation()
		if _, err := inc.Create(t.Context(), "/e", nil, session.Ephemeral); err != nil {
			t.Fatal(err)
		}
		m.GiveUp(errEnough)
		m.GiveUp(nil)
		elapsed(t, "context", inc.Context().Done(), time.Second)
		cause := context.Cause(inc.Context())
		wantErr(t, "cause", cause, session.ErrSessionExpired)
		wantErr(t, "cause", cause, errEnough)
		again := m.incarnation()
		if _, _, there := w.srv.Get("/e"); there {
			t.Error("the ephemeral is still there")
		}
		if again.SessionID() == inc.SessionID() {
			t.Error("same session")
		}
		synctest.Wait()
		if n := w.srv.Stats().Sessions; n != 1 {
			t.Errorf("%d sessions on the server", n)
		}
	})
}

func TestHold(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", nil)
		release, other := m.Hold(), m.Hold()
		inc := m.incarnation()
		done := m.done
		ended := make(chan error, 1)
		go func() { ended <- m.stop() }()
		time.Sleep(10 * time.Second)
		if !inc.Trusted() || len(done) > 0 {
			t.Fatal("Run ended though the session is held")
		}
		if err := inc.EnsurePath(t.Context(), "/still/works"); err != nil {
			t.Error(err)
		}
		release()
		release()
		time.Sleep(time.Second)
		if !inc.Trusted() {
			t.Fatal("Run ended though the session is still held once")
		}
		other()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		wantErr(t, "cause", context.Cause(inc.Context()), session.ErrClosed)
		if n := w.srv.Stats().Sessions; n != 0 {
			t.Errorf("%d sessions left on the server", n)
		}
		_, err := m.Incarnation(t.Context())
		wantErr(t, "Incarnation", err, session.ErrClosed)
		_, _, err = inc.Get(t.Context(), "/")
		wantErr(t, "Get", err, session.ErrClosed)
		if m.Current() != nil || m.Stats().State != "closed" {
			t.Errorf("%+v", m.Stats())
		}
		if err := m.Run(t.Context()); err == nil {
			t.Error("Run ran twice")
		}
	})
}

func TestHoldTooLong(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", func(o *session.Options) { o.StopTimeout = 3 * time.Second })
		defer m.Hold()()
		m.incarnation()
		start := time.Now()
		if err := m.stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("Run ended after %v", took)
		}
	})
}

// Run ends in time and leaves nothing behind, whatever the servers do.
func TestStop(t *testing.T) {
	for name, trouble := range map[string]func(w *world, m *member){
		"healthy":          func(*world, *member) {},
		"never connected":  func(w *world, _ *member) { w.net.Refuse(); w.net.Cut() },
		"silent handshake": func(w *world, _ *member) { w.srv.SilentHandshakes(true); w.srv.CutAll() },
		"refused":          func(w *world, _ *member) { w.srv.RefuseHandshakes(true); w.srv.CutAll() },
		"black hole":       func(w *world, _ *member) { w.net.BlackHole(zktest.Both) },
		"frozen":           func(w *world, _ *member) { w.srv.Freeze() },
		"no proofs":        func(w *world, _ *member) { proofsFail(w, true) },
	} {
		for _, when := range []time.Duration{0, time.Millisecond, 700 * time.Millisecond, 5 * time.Second, 20 * time.Second} {
			t.Run(fmt.Sprintf("%s after %v", name, when), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					if when == 0 {
						trouble(w, nil)
					}
					m := w.start("a", nil)
					if when != 0 {
						m.incarnation()
						trouble(w, m)
					}
					call := make(chan error, 1)
					go func() {
						inc, err := m.Incarnation(t.Context())
						if err == nil {
							_, err = inc.Create(t.Context(), "/x", nil, session.Ephemeral)
						}
						call <- err
					}()
					time.Sleep(when)
					start := time.Now()
					if err := m.stop(); err != nil {
						t.Errorf("Run: %v", err)
					}
					if took := time.Since(start); took > 3*time.Second {
						t.Errorf("Run ended after %v", took)
					}
					elapsed(t, "call", closing(call), time.Second)
				})
			})
		}
	}
}

func closing[T any](c <-chan T) <-chan struct{} {
	done := make(chan struct{})
	go func() { <-c; close(done) }()
	return done
}

func TestIncarnationWaits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.net.Refuse()
		m := w.start("a", nil)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errEnough)
		defer cancel()
		_, err := m.Incarnation(ctx)
		wantErr(t, "Incarnation", err, errEnough)
		if !strings.Contains(err.Error(), "zk:2181") || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%v: neither the servers nor the reason named", err)
		}
		if got := m.Stats().State; got != "connecting" {
			t.Errorf("state %q", got)
		}
		w.net.Heal()
		m.incarnation()
	})
}

// Servers that come back with empty data turn the old client away for ever.
func TestServersLoseTheirData(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", func(o *session.Options) { o.Chroot = "/app" })
		inc := m.incarnation()
		for i := range 50 {
			if _, err := inc.Create(t.Context(), fmt.Sprintf("/n%d", i), nil, session.Ephemeral); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		w.srv.Restart(true)
		<-inc.Context().Done()
		again := m.incarnation()
		if err := again.EnsurePath(t.Context(), "/rebuilt"); err != nil {
			t.Fatal(err)
		}
		took := time.Since(start)
		t.Logf("rebuilt after %v", took)
		if took > 17*time.Second {
			t.Error("too late")
		}
		if got := m.Stats(); got.Replaced != 1 || again.SessionID() == inc.SessionID() {
			t.Errorf("%+v", got)
		}
		if _, _, there := w.srv.Get("/app/rebuilt"); !there {
			t.Error("not under the chroot")
		}
	})
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
		if got := m.Stats(); got.BadFrames != 1 || got.SessionID != id || inc.SessionID() != id || !inc.Trusted() {
			t.Errorf("%+v", got)
		}
	})
}

// Attack 5: while a connect request is unanswered, the leader may count with the smallest timeout there is.
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

// One server accepts connections and says nothing. The other one is reached within the cap.
func TestSilentServer(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		silent, err := w.net.Listen("silent:2181")
		if err != nil {
			t.Fatal(err)
		}
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
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			m := run(t, s, w.net.Client(name))
			m.incarnation()
			worst = max(worst, time.Since(start))
			for range 3 {
				start = time.Now()
				m.link.Cut()
				if _, _, err := m.incarnation().Get(t.Context(), "/"); err != nil {
					t.Fatal(err)
				}
				worst = max(worst, time.Since(start))
				time.Sleep(2 * time.Second)
			}
			if err := m.stop(); err != nil {
				t.Error(err)
			}
		}
		t.Logf("longest way past a silent server %v", worst)
		if worst > 1200*time.Millisecond {
			t.Error("too long")
		}
	})
}

func TestClockJumps(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		start, jump := time.Now(), atomic.Int64{}
		link := w.net.Client("a")
		s, err := session.New([]string{"zk:2181"}, session.Options{Timeout: timeout, Dial: link.Dial})
		if err != nil {
			t.Fatal(err)
		}
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
