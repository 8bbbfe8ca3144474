package queue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// A Get that waits for long while all entries are held logs who has the first. A Get of an empty queue logs nothing.
func TestLongWaitIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var log bytes.Buffer
		q, err := queue.NewLocking(w.Session("waiter"), path, queue.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() {
			h, err := q.Get(t.Context())
			if err == nil {
				err = h.Release(t.Context())
			}
			got <- err
		}()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if log.Len() > 0 {
			t.Errorf("said of an empty queue:\n%s", &log)
		}
		// One request puts and takes the entry: nobody sees one without the other.
		s := w.Session("holder")
		inc := must[*session.Incarnation](w)(s.Incarnation(t.Context()))
		_, err = inc.Multi(t.Context(),
			session.CreateOp(entry, nil, session.Persistent), session.CreateOp(taken, []byte(pythonID), session.Ephemeral))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute) // logged after half a minute, 1, 2 and 4 minutes
		synctest.Wait()
		said := strings.Count(log.String(), "still waiting")
		if err := inc.Delete(t.Context(), taken, -1); err != nil {
			t.Error(err)
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
		if said != 4 || !strings.Contains(log.String(), "blocker.path="+taken) || !strings.Contains(log.String(), "blocker.data="+pythonID) {
			t.Errorf("said %d times, want 4, and that %s is in the way:\n%s", said, taken, &log)
		}
	})
}

// Others always hold some entry, each for a short time: no single holder is waited for.
func TestFlowIsNoLongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var log bytes.Buffer
		q, err := queue.NewLocking(w.Session("waiter"), path, queue.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		got := make(chan error, 1)
		go func() {
			_, err := q.Get(ctx)
			got <- err
		}()
		synctest.Wait()
		inc := must[*session.Incarnation](w)(w.Session("holder").Incarnation(t.Context()))
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
			if _, err := inc.Multi(t.Context(), ops...); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Second)
		}
		if err := <-got; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if log.Len() > 0 {
			t.Errorf("said while entries flow:\n%s", &log)
		}
	})
}

// The holder's znode can't be read when the warning is due: it comes with the next event, not after twice the time.
func TestLongWaitIsSaidWhenItCanBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var log bytes.Buffer
		q, err := queue.NewLocking(w.Session("waiter"), path, queue.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		w.put(q, "one")
		inc := must[*session.Incarnation](w)(w.Session("holder").Incarnation(t.Context()))
		must[string](w)(inc.Create(t.Context(), path+"/taken", nil, session.Persistent))
		must[string](w)(inc.Create(t.Context(), taken, []byte(pythonID), session.Ephemeral))
		w.once(func(r zktest.Request) bool { return r.Op == zktest.OpGetData && r.Path == taken }, func(*zktest.Request) zktest.Action {
			return zktest.Action{Err: zktest.ErrNoNode}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 55*time.Second)
		defer cancel()
		if _, err := q.Get(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if said := strings.Count(log.String(), "still waiting"); said != 1 {
			t.Errorf("said %d times, want once:\n%s", said, &log)
		}
	})
}
