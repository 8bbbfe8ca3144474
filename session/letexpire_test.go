package session_test

import (
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Ephemeral znodes of a session that is left to its timeout stay for that timeout, whether the Session goes on or is closed at
// once.
func TestLetExpire(t *testing.T) {
	for name, closed := range map[string]bool{"and go on": false, "and close": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				m := w.start("a", nil)
				inc := m.incarnation()
				noerr.Last(t)(inc.Create(t.Context(), "/e", nil, session.Ephemeral))
				start := time.Now()
				m.LetExpire()
				if closed {
					noerr.Must(t, m.stop())
					if took := time.Since(start); took > 100*time.Millisecond {
						t.Errorf("closing took %v", took)
					}
				} else {
					elapsed(t, "context", inc.Context().Done(), time.Second)
					if again := m.incarnation(); again.SessionID() == inc.SessionID() {
						t.Error("same session")
					}
				}
				time.Sleep(timeout - 100*time.Millisecond - time.Since(start))
				if _, _, stands := w.srv.Get("/e"); !stands {
					t.Error("the ephemeral znode is gone before the session has expired")
				}
				time.Sleep(tick + 200*time.Millisecond)
				if _, _, stands := w.srv.Get("/e"); stands {
					t.Error("the ephemeral znode outlives the session's timeout")
				}
			})
		})
	}
}

// A session that was left to its timeout is never closed, and one that was given up first is.
func TestLetExpireClosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		closes := func() int { return w.srv.Stats().Requests[zktest.OpCloseSession] }
		m := w.start("a", nil)
		m.incarnation()
		m.LetExpire()
		m.LetExpire()
		time.Sleep(time.Second)
		if n := closes(); n != 0 {
			t.Errorf("%d close requests", n)
		}
		m.incarnation()
		m.GiveUp(errEnough)
		m.LetExpire()
		time.Sleep(time.Second)
		if n := closes(); n != 1 {
			t.Errorf("%d close requests of the session that was given up", n)
		}
	})
}
