package counter_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

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
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put("5")
		c := w.counter(w.Session("g"))
		python := must[*session.Incarnation](w)(w.Session("python").Incarnation(t.Context()))
		var added int64
		w.onSet(func() zktest.Action {
			// kazoo's _inner_change
			data, stat, err := python.Get(t.Context(), path)
			if err == nil && string(data) == "5" {
				_, err = python.Set(t.Context(), path, []byte("6"), stat.Version)
			}
			if err != nil {
				t.Error(err)
			}
			added++
			return zktest.Action{Cut: true}
		})
		v, err := c.Add(t.Context(), 1)
		if err == nil {
			added++
		} else if _, ok := c.Last(); ok || !errors.Is(err, session.ErrUncertain) {
			t.Errorf("got %d, %v", v, err)
		}
		if sum := must[int64](w)(strconv.ParseInt(w.data(), 10, 64)); sum < 5+added {
			t.Errorf(oneShort+": %d additions to 5 have made %d", added, sum)
		}
	})
}

// §13: a reset. Python's counter creates the znode once and does not check again that it exists.
func TestResetKeepsTheZnode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.counter(w.Session("g"))
		python := must[*session.Incarnation](w)(w.Session("python").Incarnation(t.Context()))
		if err := python.EnsurePath(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		must[int64](w)(c.Add(t.Context(), 7))
		if err := c.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		data, _, err := python.Get(t.Context(), path)
		switch {
		case errors.Is(err, session.ErrNoNode):
			t.Errorf(pythonFails+": %v", err)
		case err != nil || string(data) != "0":
			t.Errorf("got %q, %v", data, err)
		}
	})
}

// §13: Python reads the counter after we have created the znode and before we have written the number. kazoo can't decode nil
// data, which is None in Python: it raises AttributeError.
func TestNilIsNoNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.counter(w.Session("g"))
		python := must[*session.Incarnation](w)(w.Session("python").Incarnation(t.Context()))
		w.onSet(func() zktest.Action {
			data, _, err := python.Get(t.Context(), path)
			switch {
			case err != nil || len(data) > 0:
				t.Errorf("got %q, %v", data, err)
			case data == nil:
				t.Errorf(pythonFails + ": it reads None")
			}
			return zktest.Action{}
		})
		must[int64](w)(c.Add(t.Context(), 7))
	})
}

// §13: somebody deletes the znode and its directory. Our counter creates both again, so that Python's, which creates them once,
// works again.
func TestDirectoryDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put("5")
		c := w.counter(w.Session("g"))
		python := must[*session.Incarnation](w)(w.Session("python").Incarnation(t.Context()))
		must[int64](w)(c.Add(t.Context(), 1))
		if err := errors.Join(w.Srv.Delete(path), w.Srv.Delete(path[:strings.LastIndexByte(path, '/')])); err != nil {
			t.Fatal(err)
		}
		_, err := c.Add(t.Context(), 1)
		if err != nil && !errors.Is(err, session.ErrNoNode) {
			t.Error(err)
		}
		data, _, err := python.Get(t.Context(), path)
		switch {
		case errors.Is(err, session.ErrNoNode):
			t.Errorf(pythonFails+": %v", err)
		case err != nil || string(data) != "1":
			t.Errorf("got %q, %v", data, err)
		}
	})
}
