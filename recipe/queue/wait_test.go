package queue_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/session"
)

// Who waits for long while all entries are held says who has the first. That the queue is empty is nothing to be said.
func TestLongWaitIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var log bytes.Buffer
		q, err := queue.NewLocking(w.session("waiter"), path, queue.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
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
		// It is put and taken in one request: nobody sees the one without the other.
		s := w.session("holder")
		inc := must[*session.Incarnation](w)(s.Incarnation(t.Context()))
		_, err = inc.Multi(t.Context(),
			session.CreateOp(entry, nil, session.Persistent), session.CreateOp(taken, []byte(pythonID), session.Ephemeral))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute) // said after half a minute, 1, 2 and 4 minutes
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
