package semaphore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/recipe/semaphore"
	"github.com/kielgo/kiel/zktest"
)

// Clients acquire, give up, hold and release at random while links break, freeze and lose
// replies: never more than three hold a lease, everybody gets one again when the faults end,
// and nothing is left.
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
		clients = 6
		leases  = 3
		length  = 2 * time.Minute
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
	end := time.Now().Add(length)
	sems := make([]*semaphore.Semaphore, clients)
	for i := range clients {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		sem := w.semaphore(fmt.Sprint(i), leases)
		sems[i] = sem
		wg.Go(func() {
			for time.Now().Before(end) {
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
	heal := func() {
		for i := range clients {
			w.nw.Client(fmt.Sprint(i)).Heal()
		}
	}
	rnd := rand.New(rand.NewPCG(seed, clients))
	for time.Now().Before(end) {
		time.Sleep(time.Duration(rnd.IntN(2000)) * time.Millisecond)
		client := w.nw.Client(fmt.Sprint(rnd.IntN(clients)))
		switch rnd.IntN(6) {
		case 0:
			client.Cut()
		case 1:
			client.BlackHole([]zktest.Direction{zktest.ToServer, zktest.ToClient, zktest.Both}[rnd.IntN(3)])
		case 2:
			client.Heal()
		case 3:
			client.Delay(time.Duration(rnd.IntN(800)) * time.Millisecond)
		case 4:
			w.srv.LoseReply(rnd.IntN(3)+1, []func(zktest.Request) bool{makesLease, is(zktest.OpCreate), is(zktest.OpDelete)}[rnd.IntN(3)])
		case 5:
			heal()
		}
	}
	w.srv.LoseReply(0, nil)
	heal()
	wg.Wait()
	for _, sem := range sems {
		w.release(w.acquire(sem))
	}
	time.Sleep(30 * time.Second)
	w.wantZnodes(0, 0)
	return count
}
