package counter_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The harms of the executions. § in the comments below is the number of the attack in the table of test/attacks/recipes.md.
const (
	oneShort    = "an addition counts and is not in the sum"
	pythonFails = "Python's counter fails"
)

// §11 (c): the counter is at 5. We and Python both write 6; our connection breaks and Python's write wins. The znode then has our
// number, one version later, although our write was not carried out.
func TestAnotherWroteTheSameNumber(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Write(path, "5")
		c := w.counter(w.Session("g"))
		python := w.Incarnation(w.Session("python"))
		var added int64
		w.onSet(func() zktest.Action {
			// kazoo's _inner_change
			data, stat, err := python.Get(w.Context(), path)
			if err == nil && string(data) == "5" {
				_, err = python.Set(w.Context(), path, []byte("6"), stat.Version)
			}
			w.Check(err)
			added++
			return zktest.Action{Cut: true}
		})
		v, err := c.Add(w.Context(), 1)
		if err == nil {
			added++
		} else if _, ok := c.Last(); ok || !errors.Is(err, session.ErrUncertain) {
			w.Errorf("got %d, %v", v, err)
		}
		if sum := must[int64](w)(strconv.ParseInt(w.Data(path), 10, 64)); sum < 5+added {
			w.Errorf(oneShort+": %d additions to 5 have made %d", added, sum)
		}
	})
}

// §13: a reset. Python's counter creates the znode once and does not check again that it exists.
func TestResetKeepsTheZnode(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.counter(w.Session("g"))
		python := w.Incarnation(w.Session("python"))
		w.Must(python.EnsurePath(w.Context(), path))
		must[int64](w)(c.Add(w.Context(), 7))
		w.Must(c.Reset(w.Context()))
		data, _, err := python.Get(w.Context(), path)
		switch {
		case errors.Is(err, session.ErrNoNode):
			w.Errorf(pythonFails+": %v", err)
		case err != nil || string(data) != "0":
			w.Errorf("got %q, %v", data, err)
		}
	})
}

// §13: Python reads the counter after we have created the znode and before we have written the number. kazoo can't decode nil
// data, which is None in Python: it raises AttributeError.
func TestNilIsNoNumber(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.counter(w.Session("g"))
		python := w.Incarnation(w.Session("python"))
		w.onSet(func() zktest.Action {
			data, _, err := python.Get(w.Context(), path)
			switch {
			case err != nil || len(data) > 0:
				w.Errorf("got %q, %v", data, err)
			case data == nil:
				w.Errorf(pythonFails + ": it reads None")
			}
			return zktest.Action{}
		})
		must[int64](w)(c.Add(w.Context(), 7))
	})
}

// §13: somebody deletes the znode and its directory. Our counter creates both again, so that Python's, which creates them once,
// works again.
func TestDirectoryDeleted(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Write(path, "5")
		c := w.counter(w.Session("g"))
		python := w.Incarnation(w.Session("python"))
		must[int64](w)(c.Add(w.Context(), 1))
		w.Must(errors.Join(w.Srv.Delete(path), w.Srv.Delete(path[:strings.LastIndexByte(path, '/')])))
		_, err := c.Add(w.Context(), 1)
		if err != nil && !errors.Is(err, session.ErrNoNode) {
			w.Error(err)
		}
		data, _, err := python.Get(w.Context(), path)
		switch {
		case errors.Is(err, session.ErrNoNode):
			w.Errorf(pythonFails+": %v", err)
		case err != nil || string(data) != "1":
			w.Errorf("got %q, %v", data, err)
		}
	})
}
