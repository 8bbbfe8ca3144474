package election_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/election"
	"github.com/kielgo/kiel/session"
)

func TestMain(m *testing.M) {
	logtest.Silence()
	goleak.VerifyTestMain(m)
}

const path = "/app/election"

// world has what tests of this package do.
type world struct{ *recipetest.World }

// inWorld runs a test in a bubble.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	recipetest.InWorld(t, func(w *recipetest.World) { test(&world{w}) })
}

func (w *world) stoppable(name string) (s *session.Session, stop func()) {
	w.Helper()
	return recipetest.Stoppable(w, w.Net, name, session.Options{})
}

func (w *world) election(s *session.Session, identifier string) *election.Election {
	w.Helper()
	e, err := election.New(s, path, election.Options{Identifier: identifier})
	w.Must(err)
	return e
}

// candidate is a Run that goes on in the background.
type candidate struct {
	leads  chan context.Context // the function was called
	answer chan error           // what it shall return
	done   chan error           // what Run returned
	stop   context.CancelCauseFunc
}

// run starts a candidate. Its function returns when the test says so, even if its context has ended.
func (w *world) run(e *election.Election) *candidate {
	ctx, stop := context.WithCancelCause(w.Context())
	c := &candidate{leads: make(chan context.Context, 1), answer: make(chan error, 1), done: make(chan error, 1), stop: stop}
	go func() {
		c.done <- e.Run(ctx, func(ctx context.Context) error {
			c.leads <- ctx
			return <-c.answer
		})
	}()
	w.Cleanup(func() {
		stop(context.Canceled)
		close(c.answer)
		wait()
	})
	return c
}

func (w *world) wantIdentifiers(e *election.Election, want ...string) {
	w.Helper()
	list, err := e.Contenders(w.Context())
	w.Must(err)
	for i, c := range list {
		if i >= len(want) || c.Identifier != want[i] {
			w.Errorf("contenders are %+v, want %q", list, want)
			return
		}
	}
	if len(list) != len(want) {
		w.Errorf("contenders are %+v, want %q", list, want)
	}
}

// wait sleeps until requests in flight are answered.
func wait() { time.Sleep(time.Second) }
