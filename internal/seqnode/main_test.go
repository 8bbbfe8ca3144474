package seqnode_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/session"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	goleak.VerifyTestMain(m)
}

// world has what tests of this package do.
type world struct{ *recipetest.World }

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{recipetest.NewWorld(t)}
}

// session runs a session that connects as the client "a", until the test ends.
func (w *world) session() *session.Session {
	w.Helper()
	return recipetest.Session(w, w.Net, "a")
}

// node creates a contender in the directory /d, for which later ones wait.
func (w *world) node(s *session.Session, data string) *seqnode.Node {
	w.Helper()
	dir := seqnode.NewDir(s, "/d", seqnode.Options{Word: "-n-", Rivals: []string{"-n-"}, Data: []byte(data)})
	n, err := dir.Create(w.Context())
	noerr.Must(w, err)
	return n
}
