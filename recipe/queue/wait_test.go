package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// A Get that waits for long while all entries are held logs who has the first. A Get of an empty queue logs nothing.
func TestLongWaitIsSaid(t *testing.T) {
	inWorld(t, func(w *world) {
		log, said := w.LongWaits()
		q, err := queue.NewLocking(w.Session("waiter"), path, queue.Options{Logger: log})
		w.Must(err)
		got := recipetest.AcquireLater(w.Context(), w, q.Get)
		time.Sleep(5 * time.Minute)
		said(0, taken, pythonID)
		// One request puts and takes the entry: nobody sees one without the other.
		s := w.Session("holder")
		inc := w.Incarnation(s)
		_, err = inc.Multi(w.Context(),
			session.CreateOp(entry, nil, session.Persistent), session.CreateOp(taken, []byte(pythonID), session.Ephemeral))
		w.Must(err)
		time.Sleep(5 * time.Minute) // logged after half a minute, 1, 2 and 4 minutes
		said(4, taken, pythonID)
		w.Check(inc.Delete(w.Context(), taken, -1))
		got.Get(w)
	})
}

// Others always hold some entry, each for a short time: no single holder is waited for.
func TestFlowIsNoLongWait(t *testing.T) {
	inWorld(t, func(w *world) {
		log, said := w.LongWaits()
		q, err := queue.NewLocking(w.Session("waiter"), path, queue.Options{Logger: log})
		w.Must(err)
		got := recipetest.AcquireLater(w.Within(5*time.Minute), w, q.Get)
		synctest.Wait()
		inc := w.Incarnation(w.Session("holder"))
		for i := range 15 {
			name := fmt.Sprintf("entry-100-%010d", i)
			ops := []session.Op{
				session.CreateOp(path+"/entries/"+name, nil, session.Persistent),
				session.CreateOp(path+"/taken/"+name, []byte(pythonID), session.Ephemeral),
			}
			if i > 0 {
				last := fmt.Sprintf("entry-100-%010d", i-1)
				ops = append(ops, session.DeleteOp(path+"/entries/"+last, -1), session.DeleteOp(path+"/taken/"+last, -1))
			}
			_, err := inc.Multi(w.Context(), ops...)
			w.Must(err)
			time.Sleep(20 * time.Second)
		}
		if <-got.Done; !errors.Is(got.Err, context.DeadlineExceeded) {
			w.Errorf("got %v", got.Err)
		}
		said(0, path, "")
	})
}

// The holder's znode can't be read when the warning is due: it comes with the next event, not after twice the time.
func TestLongWaitIsSaidWhenItCanBeRead(t *testing.T) {
	inWorld(t, func(w *world) {
		log, said := w.LongWaits()
		q, err := queue.NewLocking(w.Session("waiter"), path, queue.Options{Logger: log})
		w.Must(err)
		w.put(q, "one")
		inc := w.Incarnation(w.Session("holder"))
		must[string](w)(inc.Create(w.Context(), path+"/taken", nil, session.Persistent))
		must[string](w)(inc.Create(w.Context(), taken, []byte(pythonID), session.Ephemeral))
		reads := func(r zktest.Request) bool { return r.Op == zktest.OpGetData && r.Path == taken }
		w.Steps(recipetest.Meets(zktest.Action{Err: zktest.ErrNoNode}, reads))
		if _, err := q.Get(w.Within(55 * time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("got %v", err)
		}
		said(1, taken, pythonID)
	})
}
