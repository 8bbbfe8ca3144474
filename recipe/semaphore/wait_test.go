package semaphore_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/recipe/semaphore"
	"github.com/kielgo/kiel/zktest"
)

// Who waits for a lease for long says who has one.
func TestLongWaitIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.acquire(w.semaphore("holder", 1))
		var log bytes.Buffer
		s, err := semaphore.New(w.Session("waiter"), path, semaphore.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		waiting := w.acquireLater(t.Context(), s)
		time.Sleep(5 * time.Minute) // said after half a minute, 1, 2 and 4 minutes
		w.release(h)
		w.release(w.got(waiting))
		if said := strings.Count(log.String(), "still waiting"); said != 4 ||
			!strings.Contains(log.String(), "blocker.path="+h.Node()) || !strings.Contains(log.String(), "blocker.data=holder") {
			t.Errorf("said %d times, want 4, and that %s is in the way:\n%s", said, h.Node(), &log)
		}
	})
}

// Who waits for long until the lease that it had is gone, since no server can be reached, says so, too.
func TestLongWaitForOnesOwnIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var log bytes.Buffer
		s, err := semaphore.New(w.Session("a"), path, semaphore.Options{
			Identifier: "ours", Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		h := w.acquire(s)
		w.Net.Client("a").BlackHole(zktest.Both)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		go func() { _ = h.Release(ctx) }()
		<-h.Context().Done()
		if _, err := s.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if said := strings.Count(log.String(), "still waiting"); said != 4 ||
			!strings.Contains(log.String(), "blocker.path="+h.Node()) || !strings.Contains(log.String(), "blocker.data=ours") {
			t.Errorf("said %d times, want 4, and that %s is in the way:\n%s", said, h.Node(), &log)
		}
		w.Net.Client("a").Heal()
	})
}
