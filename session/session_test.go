package session_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestGiveUp(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", nil)
		m.GiveUp(nil) // nothing to give up yet, or the first session; either is fine
		inc := m.incarnation()
		noerr.Last(t)(inc.Create(t.Context(), "/e", nil, session.Ephemeral))
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

func TestKeepOpen(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", nil)
		release, other := m.KeepOpen(), m.KeepOpen()
		inc := m.incarnation()
		done := m.done
		ended := make(chan error, 1)
		go func() { ended <- m.stop() }()
		time.Sleep(10 * time.Second)
		if !inc.Trusted() || len(done) > 0 {
			t.Fatal("Run ended though the session is kept open")
		}
		noerr.Want(t, inc.EnsurePath(t.Context(), "/still/works"))
		release()
		release()
		time.Sleep(time.Second)
		if !inc.Trusted() {
			t.Fatal("Run ended though the session is still kept open once")
		}
		other()
		noerr.Want(t, <-ended)
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
		wantErr(t, "a second Run", m.Run(t.Context()), kiel.ErrRunTwice)
	})
}

func TestKeptOpenTooLong(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", func(o *session.Options) { o.StopTimeout = 3 * time.Second })
		defer m.KeepOpen()()
		m.incarnation()
		start := time.Now()
		noerr.Want(t, m.stop())
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
					noerr.Want(t, m.stop())
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
