package sharedset_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Members add and remove items of their own while links break and freeze, replies get lost and sessions expire. Each repeats what
// failed. In the end the set holds what was asked for, every watcher sees it, and no contender is left.
func TestRandomFaults(t *testing.T) {
	for seed := range uint64(4) {
		inWorld(t, func(w *world) { randomFaults(w, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func randomFaults(w *world, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	names := []string{"a", "b", "c", "d", "e"}
	faulty, stop := context.WithCancel(w.Context())
	var wg sync.WaitGroup
	var mu sync.Mutex
	var want []string
	var sets []*sharedset.Set
	for i, name := range names {
		s := w.set(name, sharedset.Options{})
		recipetest.Run(w, s)
		sets = append(sets, s)
		random := rand.New(rand.NewPCG(seed, uint64(i+2)))
		wg.Go(func() {
			has := map[string]bool{}
			for range 20 {
				item := fmt.Sprintf("%s:%d", name, random.IntN(5))
				has[item] = !has[item]
				if has[item] {
					insist(w, s.Add, item, random)
				} else {
					insist(w, s.Remove, item, random)
				}
				time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
			}
			mu.Lock()
			defer mu.Unlock()
			for item, in := range has {
				if in {
					want = append(want, item)
				}
			}
		})
	}
	faults := make(chan struct{})
	go func() {
		defer close(faults)
		for faulty.Err() == nil {
			client := w.Net.Client(names[rng.IntN(len(names))])
			switch rng.IntN(6) {
			case 0:
				client.Cut()
			case 1:
				client.BlackHole(zktest.Direction(1 + rng.IntN(3)))
			case 2:
				client.Delay(time.Duration(rng.IntN(300)) * time.Millisecond)
			case 3:
				w.Srv.LoseReply(1+rng.IntN(2), func(r zktest.Request) bool { return isWrite(&r) || r.Op == zktest.OpCreate })
			case 4:
				if list := w.Srv.Sessions(); len(list) > 0 {
					w.Srv.KillSession(list[rng.IntN(len(list))].ID)
				}
			}
			time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
			for _, name := range names {
				if rng.IntN(2) == 0 {
					w.Net.Client(name).Heal()
				}
			}
		}
	}()
	wg.Wait()
	stop()
	<-faults
	w.Srv.LoseReply(0, nil)
	for _, name := range names {
		w.Net.Client(name).Heal()
	}
	slices.Sort(want)
	got, err := sharedset.Decode([]byte(w.Data(path)))
	if err != nil || !slices.Equal(got, want) {
		w.Errorf("got %q, %v, want %q", got, err, want)
	}
	for _, s := range sets {
		w.waitItems(s, want...)
	}
	time.Sleep(15 * time.Second)
	w.wantNoContenders()
}

// insist repeats a change until it has succeeded.
func insist(w *world, change func(context.Context, ...string) (int, error), item string, random *rand.Rand) {
	for {
		ctx, cancel := context.WithTimeout(w.Context(), time.Duration(1+random.IntN(30_000))*time.Millisecond)
		n, err := change(ctx, item)
		cancel()
		switch {
		case err == nil && n <= 1:
			return
		case err == nil:
			w.Errorf("%d changed by one item", n)
			return
		case w.Context().Err() != nil:
			return
		case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, session.ErrUncertain):
			w.Errorf("%s: %v", item, err)
			return
		}
	}
}
