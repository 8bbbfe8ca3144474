package semaphore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/semaphore"
	"github.com/kielgo/kiel/zktest"
)

// Who waits for a lease for long says who has one.
func TestLongWaitIsSaid(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.acquire(w.semaphore("holder", 1))
		log, said := w.LongWaits()
		s, err := semaphore.New(w.Session("waiter"), path, semaphore.Options{Logger: log})
		w.Must(err)
		waiting := w.acquireLater(w.Context(), s)
		time.Sleep(5 * time.Minute) // said after half a minute, 1, 2 and 4 minutes
		w.Release(h)
		w.Release(waiting.Get(w))
		said(4, h.Node(), "holder")
	})
}

// Who waits for long until the lease that it had is gone, since no server can be reached, says so, too.
func TestLongWaitForOnesOwnIsSaid(t *testing.T) {
	inWorld(t, func(w *world) {
		log, said := w.LongWaits()
		s, err := semaphore.New(w.Session("a"), path, semaphore.Options{Identifier: "ours", Logger: log})
		w.Must(err)
		h := w.acquire(s)
		w.Net.Client("a").BlackHole(zktest.Both)
		ctx := w.Within(5 * time.Minute)
		go func() { _ = h.Release(ctx) }()
		<-h.Context().Done()
		if _, err := s.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			w.Fatal(err)
		}
		said(4, h.Node(), "ours")
		w.Net.Client("a").Heal()
	})
}
