package barrier_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/recipe/barrier"
)

// Who waits for long at a barrier says so.
func TestLongWaitAtABarrierIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var log bytes.Buffer
		b, err := barrier.New(w.session("waiter"), path, barrier.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.srv.Create(path, nil); err != nil {
			t.Fatal(err)
		}
		waiting := w.later(func() error { return b.Wait(t.Context()) })
		time.Sleep(5 * time.Minute) // said after half a minute, 1, 2 and 4 minutes
		synctest.Wait()
		if said := strings.Count(log.String(), "still waiting"); said != 4 || !strings.Contains(log.String(), "blocker.path="+path) {
			t.Errorf("said %d times, want 4:\n%s", said, &log)
		}
		if err := w.srv.Delete(path); err != nil {
			t.Fatal(err)
		}
		w.ended(waiting, nil)
	})
}

// Who waits for long to leave says for whom, and so does who waits for what is left of it.
func TestLongWaitIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var log bytes.Buffer
		d, err := barrier.NewDouble(w.session("waiter"), path, 2, barrier.DoubleOptions{
			Identifier: "waiter", Unique: true, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		said := func(blocker, data string) {
			t.Helper()
			time.Sleep(5 * time.Minute) // said after half a minute, 1, 2 and 4 minutes
			synctest.Wait()
			if said := strings.Count(log.String(), "still waiting"); said != 4 ||
				!strings.Contains(log.String(), "blocker.path="+blocker) || !strings.Contains(log.String(), "blocker.data="+data) {
				t.Errorf("said %d times, want 4, and that %s is in the way:\n%s", said, blocker, &log)
			}
			log.Reset()
		}
		const remains = "0123456789abcdef0123456789abcdef"
		if err := w.srv.Create(path+"/"+remains, []byte("waiter")); err != nil {
			t.Fatal(err)
		}
		entering := w.enter(t.Context(), d)
		said(path+"/"+remains, "waiter")
		w.remove(remains)
		other := w.in(w.enter(t.Context(), w.double(w.session("other"), 2, "other")))
		leaving := w.leave(t.Context(), w.in(entering))
		said(other.Node(), "other")
		w.ended(w.leave(t.Context(), other), nil)
		w.ended(leaving, nil)
	})
}
