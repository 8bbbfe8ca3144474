package session_test

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
)

// A session that ends while a server is silent does not warn of the connection that it closes itself.
func TestEarlyExitIsNoFailedConnection(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	noerr.Must(t, err)
	defer ln.Close()
	log := new(logtest.Log)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if _, err := session.Start(ctx, []string{ln.Addr().String()}, session.Options{Logger: logger}); err == nil {
		t.Fatal("the session has started")
	}
	if n := log.Count("connection failed"); n > 0 {
		t.Errorf("%d connections have failed:\n%s", n, log)
	}
}

// A connection to another server in the place of one that was lost has a line.
func TestConnectedAgainIsLogged(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		log := new(logtest.Log)
		m := w.start("a", func(o *session.Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
		m.incarnation()
		if n := log.Count(`msg="connected to ZooKeeper again"`); n > 0 {
			t.Errorf("%d lines at the start:\n%s", n, log)
		}
		m.link.Cut()
		time.Sleep(5 * time.Second)
		if n := log.Count("level=INFO", `msg="connected to ZooKeeper again"`, "server=", "session_id=0x"); n != 1 {
			t.Errorf("%d lines:\n%s", n, log)
		}
	})
}
