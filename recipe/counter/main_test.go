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

// inWorld runs a test in a bubble.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	recipetest.InWorld(t, func(w *recipetest.World) { test(&world{w}) })
}

func must[T any](w *world) func(T, error) T { return recipetest.Must[T](w) }

func is(op zktest.Op) func(zktest.Request) bool { return recipetest.Is(op) }
