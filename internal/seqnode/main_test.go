package seqnode_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/defaultlog/logtest"
	"github.com/kielgo/kiel/internal/recipetest"
	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	goleak.VerifyTestMain(m)
}

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

// session runs a session that connects as the client "a", until the test ends.
func (w *world) session() *session.Session {
	w.Helper()
	return recipetest.Session(w, w.nw, "a")
}

// node makes a contender in the directory /d, which others in it wait for.
func (w *world) node(s *session.Session, data string) *seqnode.Node {
	w.Helper()
	dir := seqnode.NewDir(s, "/d", seqnode.Options{Word: "-n-", Rivals: []string{"-n-"}, Data: []byte(data)})
	n, err := dir.Create(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return n
}
