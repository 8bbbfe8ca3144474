package party_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// A Join that waits for long for a znode of our name says so: one of another session, and what the handle had before, while no
// server can be reached.
func TestLongWaitIsSaid(t *testing.T) {
	for kind, newParty := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				s, _ := c.session("g")
				var log bytes.Buffer
				p, err := newParty(s, party.KazooOptions{Identifier: "ours", Logger: slog.New(slog.NewTextHandler(&log, nil))})
				must(t, err)
				said := func() {
					t.Helper()
					synctest.Wait()
					if said := strings.Count(log.String(), "still waiting"); said != 4 ||
						!strings.Contains(log.String(), "blocker.path="+p.Node()) || !strings.Contains(log.String(), "blocker.session_id=0x") {
						t.Errorf("said %d times, want 4, and that %s is in the way:\n%s", said, p.Node(), &log)
					}
					log.Reset()
				}
				old, stopOld := c.session("old")
				inc := incarnation(c, old)
				must(t, inc.EnsurePath(t.Context(), kazooDir))
				_, err = inc.Create(t.Context(), p.Node(), nil, session.Ephemeral)
				must(t, err)
				joined := make(chan error, 1)
				go func() { joined <- p.Join(t.Context()) }()
				time.Sleep(5 * time.Minute) // said after about half a minute, 1, 2 and 4 minutes
				said()
				stopOld()
				must(t, <-joined)
				c.net.Client("g").BlackHole(zktest.Both)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				go func() { _ = p.Leave(ctx) }()
				synctest.Wait()
				if err := p.Join(ctx); err == nil {
					t.Error("joined")
				}
				said()
				c.net.Client("g").Heal()
				must(t, p.Leave(t.Context()))
			})
		})
	}
}
