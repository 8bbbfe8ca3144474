package kazoo_test

import (
	"testing"

	"github.com/kielgo/kiel/recipe/counter"
)

// counting is a counter of a case.
type counting[V int64 | int32 | float64] struct {
	*counter.Counter[V]
	w *world
}

func (c counting[V]) add(delta V) {
	c.w.Helper()
	must[V](c.w)(c.Add(c.w.Context(), delta))
}

func (c counting[V]) subtract(delta V) {
	c.w.Helper()
	must[V](c.w)(c.Subtract(c.w.Context(), delta))
}

func (c counting[V]) want(want V) {
	c.w.Helper()
	if got := must[V](c.w)(c.Get(c.w.Context())); got != want {
		c.w.Errorf("got %v, want %v", got, want)
	}
}

func (w *world) wantData(want string) {
	w.Helper()
	if got := w.data(w.path); got != want {
		w.Errorf("data %q, want %q", got, want)
	}
}

func (w *world) counter() counting[int64] {
	w.Helper()
	return w.counterOf(w.client("client"))
}

func (w *world) counterOf(client *client) counting[int64] {
	w.Helper()
	c, err := counter.New(client.Session, w.path, counter.Options[int64]{})
	w.must(err)
	return counting[int64]{c, w}
}

func (w *world) curatorCounter() counting[int32] {
	w.Helper()
	c, err := counter.NewCurator(w.client("curator").Session, w.path, counter.Options[int32]{})
	w.must(err)
	return counting[int32]{c, w}
}

func (w *world) floatCounter() counting[float64] {
	w.Helper()
	c, err := counter.NewFloat(w.client("float").Session, w.path, counter.Options[float64]{})
	w.must(err)
	return counting[float64]{c, w}
}

func TestCounter_IntCounter(t *testing.T) {
	both(t, func(w *world) {
		c := w.counter()
		c.want(0)
		c.add(2)
		c.add(1)
		c.want(3)
		c.subtract(3)
		c.subtract(1)
		c.want(-1)
		w.wantData("-1")
	})
}

func TestCounter_IntCuratorCounter(t *testing.T) {
	both(t, func(w *world) {
		c := w.curatorCounter()
		c.want(0)
		c.add(2)
		c.add(1)
		c.want(3)
		c.subtract(3)
		c.subtract(1)
		c.want(-1)
		w.wantData("\xff\xff\xff\xff")
		c.add(1)
		c.add(2147483647)
		c.want(2147483647)
		w.wantData("\x7f\xff\xff\xff")
		c.subtract(2147483647)
		c.subtract(2147483647)
		c.want(-2147483647)
		w.wantData("\x80\x00\x00\x01")
	})
}

func TestCounter_FloatCounter(t *testing.T) {
	both(t, func(w *world) {
		c := w.floatCounter()
		c.want(0)
		c.add(2.1)
		c.want(2.1)
		w.wantData("2.1")
		c.subtract(3.1)
		c.want(-1)
		w.wantData("-1.0")
	})
}

// TestCounter_Errors has the one error of kazoo's case that Go code can meet: a znode with a number of another kind, to which
// nothing is written then. Python's other TypeErrors do not compile here: to add a float or bytes to integers, or to have
// Curator's bytes and a float for default.
func TestCounter_Errors(t *testing.T) {
	both(t, func(w *world) {
		ints, four := w.counter(), w.curatorCounter()
		for _, data := range []string{"2.1", "a"} {
			w.set(w.path, data)
			_, err := ints.Add(w.Context(), 1)
			w.want(err, counter.ErrValue)
			_, err = four.Add(w.Context(), 1)
			w.want(err, counter.ErrValue)
			w.wantData(data)
		}
		w.set(w.path, "\x7f\xff\xff\xff")
		_, err := four.Add(w.Context(), 1)
		w.want(err, counter.ErrRange)
		w.wantData("\x7f\xff\xff\xff")
	})
}

func TestCounter_PrePostValues(t *testing.T) {
	both(t, func(w *world) {
		c := w.counter()
		c.want(0)
		if last, ok := c.Last(); ok {
			w.Errorf("before any change: %v", last)
		}
		wantLast := func(pre, post int64) {
			w.Helper()
			if last, ok := c.Last(); !ok || last != (counter.Change[int64]{Pre: pre, Post: post}) {
				w.Errorf("got %v, want %d and %d", last, pre, post)
			}
		}
		c.add(2)
		wantLast(0, 2)
		c.subtract(3)
		wantLast(2, -1)
	})
}
