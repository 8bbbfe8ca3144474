package barrier_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/barrier"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// A Wait that lasts for long logs that.
func TestLongWaitAtABarrierIsSaid(t *testing.T) {
	inWorld(t, func(w *world) {
		log, said := w.LongWaits()
		b, err := barrier.New(w.Session("waiter"), path, barrier.Options{Logger: log})
		w.Must(err)
		w.Must(w.Srv.Create(path, nil))
		waiting := w.later(func() error { return b.Wait(w.Context()) })
		time.Sleep(5 * time.Minute) // logged after half a minute, 1, 2 and 4 minutes
		said(4, path, "")
		w.Must(w.Srv.Delete(path))
		w.ended(waiting, nil)
	})
}

// A Leave that lasts for long logs which member it waits for, and an Enter which znode of its name.
func TestLongWaitIsSaid(t *testing.T) {
	inWorld(t, func(w *world) {
		log, said := w.LongWaits()
		d, err := barrier.NewDouble(w.Session("waiter"), path, 2, barrier.DoubleOptions{Identifier: "waiter", Logger: log})
		w.Must(err)
		w.Must(w.Srv.Create(d.Node(), []byte("foreign")))
		entering := w.enter(w.Context(), d)
		time.Sleep(5 * time.Minute)
		said(4, d.Node(), "foreign")
		w.remove(strings.TrimPrefix(d.Node(), path+"/"))
		other := w.in(w.enter(w.Context(), w.double(w.Session("other"), 2, "other")))
		leaving := w.leave(w.Context(), w.in(entering))
		time.Sleep(5 * time.Minute)
		said(4, other.Node(), "other")
		w.ended(w.leave(w.Context(), other), nil)
		w.ended(leaving, nil)
	})
}

// An Enter that waits for long until the handle's earlier znode is gone, because no server can be reached, logs that.
func TestLongWaitForOnesOwnIsSaid(t *testing.T) {
	inWorld(t, func(w *world) {
		log, said := w.LongWaits()
		d, err := barrier.NewDouble(w.Session("a"), path, 2, barrier.DoubleOptions{Identifier: "ours", Logger: log})
		w.Must(err)
		ctx := w.Within(time.Second)
		own := d.Node()
		first := w.enter(ctx, d)
		synctest.Wait()
		w.Net.Client("a").BlackHole(zktest.Both)
		w.ended(first, context.DeadlineExceeded)
		ctx = w.Within(5 * time.Minute)
		_, err = d.Enter(ctx)
		if b := w.Blocked(err, context.DeadlineExceeded); b.Blocker != own {
			w.Errorf("got %v", err)
		}
		said(4, own, "ours")
		w.Net.Client("a").Heal()
	})
}

// Somebody else's znode has our name, before Enter or from just before our create: Enter logs that, knows that nobody can have
// entered with us, and goes on when that znode is gone.
func TestForeignZnodeOfOurName(t *testing.T) {
	for _, late := range []bool{false, true} {
		inWorld(t, func(w *world) {
			log, said := w.LongWaits()
			d, err := barrier.NewDouble(w.Session("a"), path, 2, barrier.DoubleOptions{Identifier: "ours", Logger: log})
			w.Must(err)
			own := d.Node()
			foreign := func() { w.Check(w.Srv.Create(d.Node(), []byte("theirs"))) }
			if late {
				w.Steps(recipetest.Before(func(r zktest.Request) bool { return r.Op == zktest.OpCreate && r.Path == own }, foreign))
			} else {
				foreign()
			}
			_, err = d.Enter(w.Within(5 * time.Minute))
			b := w.Blocked(err, context.DeadlineExceeded)
			if b.Blocker != own || b.Identifier != "theirs" || errors.Is(err, session.ErrUncertain) {
				w.Errorf("late: %v: got %v", late, err)
			}
			said(4, own, "theirs")
			w.Srv.SetHook(nil)
			w.remove(own[len(path)+1:])
			foreign()
			entering := w.enter(w.Within(2*time.Minute), d)
			time.Sleep(time.Minute)
			w.remove(nameOf(d))
			w.ended(entering, session.ErrUncertain) // our znode exists now, alone
			if b := w.Blocked(entering.Err, session.ErrUncertain); b.Blocker != "" || !strings.HasSuffix(b.Detail, "members") || b.Detail[0] == '0' {
				w.Errorf("late: %v: got %v", late, entering.Err)
			}
		})
	}
}
