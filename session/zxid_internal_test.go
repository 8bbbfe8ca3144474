package session

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// TestHideZxid: the last zxid is hidden only while servers refuse the session, whatever was known when that was decided.
func TestHideZxid(t *testing.T) {
	const T = 10 * time.Second
	for name, c := range map[string]struct {
		since func(*client) // what happened after the decision was made
		want  bool
	}{
		"refused for T":      {func(*client) {}, true},
		"connected":          {(*client).linkUp, false},
		"connected and lost": {func(c *client) { c.linkUp(); c.linkDown(c.conn, errStale) }, false},
		"not reached":        {(*client).unreachable, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Session{now: newClock()}
				cl := &client{s: s, opts: &Options{}, log: slog.New(slog.DiscardHandler), link: link{up: make(chan struct{})}, conn: &netConn{}, made: s.now()}
				cl.ctx = t.Context()
				cl.trust = cl.newTrust(T)
				time.Sleep(T)
				decided := s.now()
				c.since(cl)
				if cl.hideZxid(decided); cl.hideLastZxid != c.want {
					t.Errorf("hidden: %v", cl.hideLastZxid)
				}
			})
		})
	}
}
