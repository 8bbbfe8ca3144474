package kazoo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/recipe/election"
)

var errUnique = errors.New("error of the leader's function")

func (w *world) election(c *client, identifier string) *election.Election {
	w.Helper()
	return must[*election.Election](w)(election.New(c.Session, w.path, election.Options{Identifier: identifier}))
}

// candidate is a Run that goes on in the background.
type candidate struct {
	name   string
	leads  chan struct{} // closed when its function was called
	answer chan error    // what that shall return
	run    *call[struct{}]
	cancel context.CancelFunc
}

// stand has somebody stand for election. The function returns when it is told to, or the test ends.
func (w *world) stand(e *election.Election, name string) *candidate {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	c := &candidate{name: name, leads: make(chan struct{}), answer: make(chan error, 1), cancel: cancel}
	c.run = later(w, func() (struct{}, error) {
		return struct{}{}, e.Run(ctx, func(context.Context) error {
			close(c.leads)
			select {
			case err := <-c.answer:
				return err
			case <-w.Context().Done():
				return w.Context().Err()
			}
		})
	})
	return c
}

func (c *candidate) leading() bool {
	select {
	case <-c.leads:
		return true
	default:
		return false
	}
}

// returns has the leader's function return, and Run with it.
func (w *world) returns(c *candidate, err error) {
	w.Helper()
	c.answer <- err
	c.run.fails(w, err)
}

// Three stand, the first leads, the second gives up, the function of the third fails, and the first leads again.
func TestElection_Election(t *testing.T) {
	both(t, func(w *world) {
		c := w.client("client")
		elections, candidates := map[string]*election.Election{}, map[string]*candidate{}
		for _, name := range []string{"a", "b", "c"} {
			elections[name] = w.election(c, name)
			candidates[name] = w.stand(elections[name], name)
		}
		observer := w.election(c, "")
		line := func() []string { return w.contenders(observer) }
		until := func(want ...string) {
			w.Helper()
			w.until(fmt.Sprintf("contenders %q", want), func() bool { return slices.Equal(line(), want) })
		}
		w.until("three contenders", func() bool { return len(line()) == 3 })
		order := line()
		one, two, three := candidates[order[0]], candidates[order[1]], candidates[order[2]]
		w.until("the first in the line leads", one.leading)
		if two.leading() || three.leading() || !elections[one.name].Leading() || elections[two.name].Leading() {
			w.Error("others lead, or say so, or the first does not")
		}

		two.cancel()
		two.run.fails(w, context.Canceled)
		w.returns(one, nil)
		w.until("the third leads", three.leading)
		if two.leading() {
			w.Error("who gave up has led")
		}

		one = w.stand(elections[one.name], one.name)
		until(three.name, one.name)
		if one.leading() {
			w.Error("two leaders")
		}
		w.returns(three, errUnique)
		w.until("the first leads again", one.leading)
		until(one.name)
		w.returns(one, nil)
		until()
	})
}

func TestElection_BadFunc(t *testing.T) {
	both(t, func(w *world) {
		w.want(w.election(w.client("client"), "").Run(w.Context(), nil), recipe.ErrNoFunction)
		w.wantList("children", w.children(w.path))
	})
}
