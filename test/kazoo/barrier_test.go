package kazoo_test

import (
	"context"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/session"
)

func (w *world) barrier(c *client) *barrier.Barrier {
	w.Helper()
	return must[*barrier.Barrier](w)(barrier.New(c.Session, w.path, barrier.Options{}))
}

func (w *world) double(c *client, path string, clients int) *barrier.DoubleBarrier {
	w.Helper()
	return must[*barrier.DoubleBarrier](w)(barrier.NewDouble(c.Session, path, clients, barrier.DoubleOptions{}))
}

func (w *world) enter(d *barrier.DoubleBarrier) *call[*barrier.Member] {
	return later(w, func() (*barrier.Member, error) { return d.Enter(w.Context()) })
}

func (w *world) leaveBarrier(m *barrier.Member) *call[struct{}] {
	return later(w, func() (struct{}, error) { return struct{}{}, m.Leave(w.Context()) })
}

func TestBarrier_NotExist(t *testing.T) {
	both(t, func(w *world) { w.must(w.barrier(w.client("client")).Wait(w.Context())) })
}

func TestBarrier_Exists(t *testing.T) {
	both(t, func(w *world) {
		c := w.client("client")
		b := w.barrier(c)
		w.must(b.Create(w.Context()))
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		w.want(b.Wait(ctx), context.DeadlineExceeded)
		waiter := later(w, func() (struct{}, error) { return struct{}{}, w.barrier(c).Wait(w.Context()) })
		w.goOn(waiter)
		w.wantUnset(w.path)
		if !must[bool](w)(b.Remove(w.Context())) {
			w.Error("there was none")
		}
		waiter.get(w)
		w.must(b.Wait(w.Context()))
	})
}

func TestBarrier_RemoveNonexistentBarrier(t *testing.T) {
	both(t, func(w *world) {
		if must[bool](w)(w.barrier(w.client("client")).Remove(w.Context())) {
			w.Error("it removed what is not there")
		}
	})
}

// wantUnset checks that a znode's data was never set: that would use up the only watch of a Python process that waits for the
// znode's end, or for ready.
func (w *world) wantUnset(path string) {
	w.Helper()
	there, stat, err := w.looks().Exists(w.Context(), path)
	w.must(err)
	if !there || stat.Version != 0 || stat.Mzxid != stat.Czxid {
		w.Errorf("%s stands: %v, %+v", path, there, stat)
	}
}

// together has n enter, and leave.
func together(t *testing.T, n int) {
	t.Helper()
	both(t, func(w *world) {
		c := w.client("client")
		var doubles []*barrier.DoubleBarrier
		var entering []*call[*barrier.Member]
		var leaving []*call[struct{}]
		for i := range n {
			for j, d := range doubles {
				if w.goOn(entering[j]); d.Participating() {
					w.Errorf("%d of %d participate", i, n)
				}
			}
			doubles = append(doubles, w.double(c, w.path, n))
			entering = append(entering, w.enter(doubles[i]))
			if i < n-1 {
				w.untilChildren(i+1, w.path)
			}
		}
		var members []*barrier.Member
		for i, e := range entering {
			members = append(members, e.get(w))
			if !doubles[i].Participating() {
				w.Error("entered, and does not participate")
			}
			w.wantUnset(members[i].Node())
		}
		w.wantUnset(session.Join(w.path, "ready"))
		for _, m := range members {
			for _, l := range leaving {
				w.goOn(l) // nobody leaves alone
			}
			leaving = append(leaving, w.leaveBarrier(m))
		}
		for i, l := range leaving {
			l.get(w)
			if doubles[i].Participating() {
				w.Error("left, and participates")
			}
		}
		w.untilChildren(0, w.path)
	})
}

func TestDoubleBarrier_BasicBarrier(t *testing.T) { together(t, 1) }
func TestDoubleBarrier_TwoBarrier(t *testing.T)   { together(t, 2) }
func TestDoubleBarrier_ThreeBarrier(t *testing.T) { together(t, 3) }

// The parent is ephemeral, so nothing can be created below it. kazoo's enter says nothing about it.
func TestDoubleBarrier_BarrierExistingParentNode(t *testing.T) {
	both(t, func(w *world) {
		c := w.client("client")
		parent := session.Join(w.path, "some")
		d := w.double(c, session.Join(parent, "path"), 1)
		w.create(w.path)
		must[string](w)(c.incarnation().Create(w.Context(), parent, nil, session.Ephemeral))
		_, err := d.Enter(w.Context())
		w.want(err, session.ErrEphemeralParent)
		if d.Participating() {
			w.Error("it participates")
		}
	})
}

// A znode of our own that exists already is taken for the one that is to be created.
func TestDoubleBarrier_BarrierExistingNode(t *testing.T) {
	both(t, func(w *world) {
		c := w.client("client")
		d := w.double(c, w.path, 1)
		w.create(w.path)
		must[string](w)(c.incarnation().Create(w.Context(), d.Node(), nil, session.Ephemeral))
		m := w.enter(d).get(w)
		if !d.Participating() || m.Node() != d.Node() {
			w.Error("it does not participate, or with another znode")
		}
		w.leaveBarrier(m).get(w)
		w.wantList("children", w.children(w.path))
	})
}
