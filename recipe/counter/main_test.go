package counter_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const path = "/app/counter"

// world is a server on a virtual network and the sessions of a test.
type world struct {
	*testing.T
	srv *zktest.Server
	nw  *zktest.Network
}

func newWorld(t *testing.T) *world {
	t.Helper()
	srv, nw := zktest.StartVirtual(t, zktest.Options{})
	return &world{T: t, srv: srv, nw: nw}
}

// session runs a session that connects as the named client, until the test ends.
func (w *world) session(name string) *session.Session {
	w.Helper()
	s, err := session.New([]string{zktest.VirtualAddress}, session.Options{Dial: w.nw.Client(name).Dial})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	w.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.Errorf("session: %v", err)
		}
	})
	return s
}

// id returns the ZooKeeper session id of a session.
func (w *world) id(s *session.Session) int64 {
	w.Helper()
	inc, err := s.Incarnation(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return inc.SessionID()
}

// data returns what is in the znode.
func (w *world) data() string {
	w.Helper()
	data, _, ok := w.srv.Get(path)
	if !ok {
		w.Fatal("no znode")
	}
	return string(data)
}

func (w *world) put(data string) {
	w.Helper()
	if _, _, ok := w.srv.Get(path); !ok {
		if err := w.srv.Create(path, nil); err != nil {
			w.Fatal(err)
		}
	}
	if err := w.srv.Set(path, []byte(data)); err != nil {
		w.Fatal(err)
	}
}

func must[T any](w *world) func(v T, err error) T {
	return func(v T, err error) T {
		w.Helper()
		if err != nil {
			w.Fatal(err)
		}
		return v
	}
}

func is(op zktest.Op) func(zktest.Request) bool {
	return func(r zktest.Request) bool { return r.Op == op }
}
