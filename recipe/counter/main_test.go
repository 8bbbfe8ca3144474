package counter_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/defaultlog/logtest"
	"github.com/kielgo/kiel/internal/recipetest"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	goleak.VerifyTestMain(m)
}

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
	return recipetest.Session(w, w.nw, name)
}

// id returns the ZooKeeper session id of a session.
func (w *world) id(s *session.Session) int64 {
	w.Helper()
	return recipetest.ID(w, s)
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

func must[T any](w *world) func(T, error) T { return recipetest.Must[T](w) }

func is(op zktest.Op) func(zktest.Request) bool { return recipetest.Is(op) }
