package zktest

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
)

// TestListenerOfStartTCPFails: a listener that fails is logged, and Close reports it.
func TestListenerOfStartTCPFails(t *testing.T) {
	var logged bytes.Buffer
	s := NewServer(Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	broken := errors.New("broken")
	s.serveOrReport(brokenListener{broken})
	if err := s.Close(); !errors.Is(err, broken) || !strings.Contains(logged.String(), "broken") {
		t.Errorf("Close: %v, log: %q", err, &logged)
	}
}

type brokenListener struct{ err error }

func (l brokenListener) Accept() (net.Conn, error) { return nil, l.err }
func (brokenListener) Close() error                { return nil }
func (brokenListener) Addr() net.Addr              { return &net.TCPAddr{} }
