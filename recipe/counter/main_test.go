package counter_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/zktest"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	goleak.VerifyTestMain(m)
}

const path = "/app/counter"

// world has what tests of this package do.
type world struct{ *recipetest.World }

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{recipetest.NewWorld(t)}
}

// data returns what is in the znode.
func (w *world) data() string {
	w.Helper()
	data, _, ok := w.Srv.Get(path)
	if !ok {
		w.Fatal("no znode")
	}
	return string(data)
}

func (w *world) put(data string) {
	w.Helper()
	if _, _, ok := w.Srv.Get(path); !ok {
		if err := w.Srv.Create(path, nil); err != nil {
			w.Fatal(err)
		}
	}
	if err := w.Srv.Set(path, []byte(data)); err != nil {
		w.Fatal(err)
	}
}

func must[T any](w *world) func(T, error) T { return recipetest.Must[T](w) }

func is(op zktest.Op) func(zktest.Request) bool { return recipetest.Is(op) }
