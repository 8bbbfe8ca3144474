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

// The harms that executions here do.
const (
	oneShort    = "an addition counts and is not in the sum"
	pythonFails = "Python's counter fails"
)

// recipe-attacks.md §11 (c): the counter is at 5. Ours and Python's both write 6; our connection breaks and Python's write
// wins. That the znode has our number, one version later, does not say that it is ours.
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

// recipe-attacks.md §13: a reset. Python's counter has made sure once that the znode is there, and does not look again.
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

// recipe-attacks.md §13: Python reads the counter after ours has made the znode and before it has written the number. Nil would be
// None to it, which kazoo can't decode: it raises AttributeError.
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

// recipe-attacks.md §13: somebody deletes the znode, and the directory that it is in. Ours makes both again, and Python's, which
// has made sure once that it is there, works again.
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
