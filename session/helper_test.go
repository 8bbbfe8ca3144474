package session_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

const (
	tick    = 2 * time.Second
	timeout = 6 * time.Second // T in most tests
)

// world is a server on a virtual network, inside a bubble.
type world struct {
	t   *testing.T
	srv *zktest.Server
	net *zktest.Network
}

// bubble runs f with a server inside a bubble.
func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	bubbleOpts(t, zktest.Options{TickTime: tick}, f)
}

func bubbleOpts(t *testing.T, opts zktest.Options, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv, network := zktest.StartVirtual(t, opts)
		f(t, &world{t: t, srv: srv, net: network})
	})
}

// member is a running session with its own client side of the network.
type member struct {
	*session.Session
	t    *testing.T
	link *zktest.Client
	stop func() error
	done chan error
}

// start runs a session until the test ends or stop is called.
func (w *world) start(name string, change func(*session.Options)) *member {
	w.t.Helper()
	link := w.net.Client(name)
	opts := session.Options{
		Timeout: timeout,
		Dial:    link.Dial,
		Logger:  slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})).With("member", name),
	}
	if change != nil {
		change(&opts)
	}
	s, err := session.New([]string{"zk:2181"}, opts)
	noerr.Must(w.t, err)
	return run(w.t, s, link)
}

func run(t *testing.T, s *session.Session, link *zktest.Client) *member {
	ctx, cancel := context.WithCancel(t.Context())
	m := &member{Session: s, t: t, link: link, done: make(chan error, 1)}
	go func() { m.done <- s.Run(ctx) }()
	var result error
	m.stop = func() error {
		cancel()
		if m.done != nil {
			result = <-m.done
			m.done = nil
		}
		return result
	}
	t.Cleanup(func() {
		if err := m.stop(); err != nil && !errors.Is(err, session.ErrAuthFailed) {
			t.Errorf("Run: %v", err)
		}
	})
	return m
}

// incarnation waits for one, for at most a minute.
func (m *member) incarnation() *session.Incarnation {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	inc, err := m.Incarnation(ctx)
	if err != nil {
		m.t.Fatalf("Incarnation: %v", err)
	}
	return inc
}

func must[T any](t *testing.T) func(v T, err error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		noerr.Must(t, err)
		return v
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: %v, want %v", what, err, want)
	}
}

// open reports whether a channel is not closed.
func open(c <-chan struct{}) bool {
	select {
	case <-c:
		return false
	default:
		return true
	}
}

// elapsed waits for c and returns how long that took; it fails after limit.
func elapsed(t *testing.T, what string, c <-chan struct{}, limit time.Duration) time.Duration {
	t.Helper()
	start := time.Now()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c:
		return time.Since(start)
	case <-timer.C:
		t.Fatalf("%s: nothing within %v", what, limit)
		return 0
	}
}
