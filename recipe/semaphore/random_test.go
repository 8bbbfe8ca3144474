package semaphore_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/semaphore"
	"github.com/kielgo/kiel/zktest"
)

// Clients acquire, give up, hold and release at random while links break, freeze and lose replies: never more than three hold a
// lease, everybody gets one again when the faults end, and nothing is left.
func TestRandomFaults(t *testing.T) {
	total := 0
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) { total += randomFaults(newWorld(t), seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("acquired %d times", total)
	if total < 500 {
		t.Errorf("acquired only %d times", total)
	}
}

func randomFaults(w *world, seed uint64) int {
	const (
		leases = 3
		length = 2 * time.Minute
	)
	var (
		mu    sync.Mutex
		live  = map[*semaphore.Held]bool{}
		count int
		wg    sync.WaitGroup
	)
	enter := func(h *semaphore.Held) {
		mu.Lock()
		defer mu.Unlock()
		live[h] = true
		count++
		n := 0
		for h := range live {
			if h.Context().Err() == nil && h.Incarnation().Trusted() {
				n++
			}
		}
		if n > leases {
			w.Errorf("%d hold %d leases", n, leases)
		}
	}
	faulty, stop := context.WithTimeout(w.Context(), length)
	defer stop()
	var sems []*semaphore.Semaphore
	names := []string{"a", "b", "c", "d", "e", "f"}
	for i, name := range names {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		sem := w.semaphore(name, leases)
		sems = append(sems, sem)
		wg.Go(func() {
			for faulty.Err() == nil {
				ctx, cancel := context.WithTimeout(w.Context(), time.Duration(rnd.IntN(20000))*time.Millisecond)
				h, err := sem.Acquire(ctx)
				cancel()
				if err != nil {
					continue
				}
				enter(h)
				select {
				case <-h.Context().Done():
				case <-time.After(time.Duration(rnd.IntN(1500)) * time.Millisecond):
				}
				mu.Lock()
				delete(live, h)
				mu.Unlock()
				ctx, cancel = context.WithTimeout(w.Context(), time.Duration(rnd.IntN(3000))*time.Millisecond)
				_ = h.Release(ctx)
				cancel()
			}
		})
	}
	trouble := recipetest.Trouble{
		Server: w.Srv, Network: w.Net, Clients: names, Seed: seed,
		Pause: 2 * time.Second, Delay: 800 * time.Millisecond,
		Losses: 3, Lose: []func(zktest.Request) bool{makesLease, is(zktest.OpCreate), is(zktest.OpDelete)},
	}
	trouble.Until(faulty)
	wg.Wait()
	for _, sem := range sems {
		w.release(w.acquire(sem))
	}
	time.Sleep(30 * time.Second)
	w.wantZnodes(0, 0)
	return count
}
