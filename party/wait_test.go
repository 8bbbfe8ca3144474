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
	"github.com/kielgo/kiel/zktest"
)

// A Join that waits for long for a znode of our name says so: one of another session, and what the handle had before, while no
// server can be reached.
func TestLongWaitIsSaid(t *testing.T) {
	eachKind(t, func(w *world, _ string, in joining) {
		var log bytes.Buffer
		p := in(w.session("g"), party.KazooOptions{Identifier: "ours", Logger: slog.New(slog.NewTextHandler(&log, nil))})
		said := func() {
			w.Helper()
			synctest.Wait()
			if said := strings.Count(log.String(), "still waiting"); said != 4 ||
				!strings.Contains(log.String(), "blocker.path="+p.Node()) || !strings.Contains(log.String(), "blocker.session_id=0x") {
				w.Errorf("said %d times, want 4, and that %s is in the way:\n%s", said, p.Node(), &log)
			}
			log.Reset()
		}
		stopOld := w.hold("old", p.Node(), "")
		joined := make(chan error, 1)
		go func() { joined <- p.Join(w.Context()) }()
		time.Sleep(5 * time.Minute) // said after about half a minute, 1, 2 and 4 minutes
		said()
		stopOld()
		must(w, <-joined)
		w.Net.Client("g").BlackHole(zktest.Both)
		ctx, cancel := context.WithTimeout(w.Context(), 5*time.Minute)
		defer cancel()
		go func() { _ = p.Leave(ctx) }()
		synctest.Wait()
		if err := p.Join(ctx); err == nil {
			w.Error("joined")
		}
		said()
		w.Net.Client("g").Heal()
		must(w, p.Leave(w.Context()))
	})
}
