package counter_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/kielgo/kiel/internal/recipetest"
	"github.com/kielgo/kiel/internal/sabotage"
	"github.com/kielgo/kiel/internal/sabotage/attack"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The harms that executions here do.
const (
	oneShort    = "an addition counts and is not in the sum"
	pythonFails = "Python's counter fails"
)

// recipe-attacks.md §11 (c): the counter is at 5. Ours and Python's both write 6; our connection breaks and Python's write
// wins. That the znode has our number, one version later, does not say that it is ours.
func TestAnotherWroteTheSameNumber(t *testing.T) {
	attack.Run(t, oneShort, func(a *attack.Attack) {
		w := newWorld(a.T)
		w.put("5")
		c := w.counter(w.Session("g"))
		python := must[*session.Incarnation](w)(w.Session("python").Incarnation(a.T.Context()))
		var added int64
		w.onSet(func() zktest.Action {
			// kazoo's _inner_change
			data, stat, err := python.Get(a.T.Context(), path)
			if err == nil && string(data) == "5" {
				_, err = python.Set(a.T.Context(), path, []byte("6"), stat.Version)
			}
			if err != nil {
				a.Error(err)
			}
			added++
			return zktest.Action{Cut: true}
		})
		v, err := c.Add(a.Context(), 1)
		if err == nil {
			added++
		} else if _, ok := c.Last(); ok || !errors.Is(err, session.ErrUncertain) {
			a.Errorf("got %d, %v", v, err)
		}
		if sum := must[int64](w)(strconv.ParseInt(w.data(), 10, 64)); sum < 5+added {
			a.Harmed(oneShort, "%d additions to 5 have made %d", added, sum)
		}
	}, sabotage.SetIfUnchanged)
}

// recipe-attacks.md §13: a reset. Python's counter has made sure once that the znode is there, and does not look again.
func TestResetKeepsTheZnode(t *testing.T) {
	attack.Run(t, pythonFails, func(a *attack.Attack) {
		w := newWorld(a.T)
		c := w.counter(w.Session("g"))
		python := must[*session.Incarnation](w)(w.Session("python").Incarnation(a.T.Context()))
		if err := python.EnsurePath(a.T.Context(), path); err != nil {
			a.Fatal(err)
		}
		must[int64](w)(c.Add(a.Context(), 7))
		if err := c.Reset(a.Context()); err != nil {
			a.Fatal(err)
		}
		data, _, err := python.Get(a.T.Context(), path)
		switch {
		case errors.Is(err, session.ErrNoNode):
			a.Harmed(pythonFails, "%v", err)
		case err != nil || string(data) != "0":
			a.Errorf("got %q, %v", data, err)
		}
	}, sabotage.ResetSets)
}

// recipe-attacks.md §13: Python reads the counter after ours has made the znode and before it has written the number. Nil would be
// None to it, which kazoo can't decode: it raises AttributeError.
func TestNilIsNoNumber(t *testing.T) {
	attack.Run(t, pythonFails, func(a *attack.Attack) {
		w := newWorld(a.T)
		c := w.counter(recipetest.Session(a, w.Net, "g")) // the session's rules, too
		python := must[*session.Incarnation](w)(w.Session("python").Incarnation(a.T.Context()))
		w.onSet(func() zktest.Action {
			data, _, err := python.Get(a.T.Context(), path)
			switch {
			case err != nil || len(data) > 0:
				a.Errorf("got %q, %v", data, err)
			case data == nil:
				a.Harmed(pythonFails, "it reads None")
			}
			return zktest.Action{}
		})
		must[int64](w)(c.Add(a.Context(), 7))
	})
}

// recipe-attacks.md §13: somebody deletes the znode, and the directory that it is in. Ours makes both again, and Python's, which
// has made sure once that it is there, works again.
func TestDirectoryDeleted(t *testing.T) {
	attack.Run(t, pythonFails, func(a *attack.Attack) {
		w := newWorld(a.T)
		w.put("5")
		c := w.counter(w.Session("g"))
		python := must[*session.Incarnation](w)(w.Session("python").Incarnation(a.T.Context()))
		must[int64](w)(c.Add(a.Context(), 1))
		if err := errors.Join(w.Srv.Delete(path), w.Srv.Delete(path[:strings.LastIndexByte(path, '/')])); err != nil {
			a.Fatal(err)
		}
		_, err := c.Add(a.Context(), 1)
		if err != nil && !errors.Is(err, session.ErrNoNode) {
			a.Error(err)
		}
		data, _, err := python.Get(a.T.Context(), path)
		switch {
		case errors.Is(err, session.ErrNoNode):
			a.Harmed(pythonFails, "%v", err)
		case err != nil || string(data) != "1":
			a.Errorf("got %q, %v", data, err)
		}
	}, sabotage.EnsureAgain)
}
