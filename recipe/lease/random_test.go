package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// holders watches that nobody has the lease beside another.
type holders struct {
	mu    sync.Mutex
	live  map[*lease.Held]string
	token int64
	count int
	renew int
}

func (o *holders) enter(h *lease.Held, who string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !h.Valid() {
		return nil
	}
	for other, name := range o.live {
		if other.Valid() {
			return fmt.Errorf("%s has the lease while %s has it", who, name)
		}
	}
	if h.Token() <= o.token {
		return fmt.Errorf("%s has token %d after %d", who, h.Token(), o.token)
	}
	o.live[h], o.token = who, h.Token()
	o.count++
	return nil
}

func (o *holders) leave(h *lease.Held) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.live, h)
}

// Clients with clocks that differ obtain, renew, release, leave and give up at random while links break, freeze and lose replies,
// and sessions are killed: never two have the lease, tokens grow, and nobody loses a lease that nobody took.
func TestRandomFaults(t *testing.T) {
	total, renewed := 0, 0
	for seed := range uint64(4) {
		inWorld(t, func(w *world) {
			o := randomFaults(w, seed)
			total, renewed = total+o.count, renewed+o.renew
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("obtained %d times, renewed %d times", total, renewed)
	if total < 300 || renewed < 100 {
		t.Error("hardly anything was tried")
	}
}

func randomFaults(w *world, seed uint64) *holders {
	o := &holders{live: map[*lease.Held]string{}}
	faulty, stop := context.WithTimeout(w.Context(), 8*time.Minute)
	defer stop()
	names := []string{"a", "b", "c"}
	var wg sync.WaitGroup
	for i, name := range names {
		l := w.leaseIn(w.session(name), lease.Options{Identifier: name, Duration: 6 * time.Second})
		off := time.Duration(i-1) * 800 * time.Millisecond
		lease.SetClock(l, func() time.Time { return time.Now().Add(off) })
		random := rand.New(rand.NewPCG(seed, uint64(i+2)))
		wg.Go(func() {
			for faulty.Err() == nil {
				once(w, o, l, name, random)
			}
		})
	}
	trouble := recipetest.Trouble{
		Server: w.Srv, Network: w.Net, Clients: names, Seed: seed,
		Pause: 3 * time.Second, Delay: 300 * time.Millisecond,
		Losses: 3, Lose: []func(zktest.Request) bool{
			is(zktest.OpCreate), is(zktest.OpDelete), is(zktest.OpMulti), is(zktest.OpSetData), is(zktest.OpGetData),
		},
		More: []func(*rand.Rand){func(random *rand.Rand) {
			if sessions := w.Srv.Sessions(); len(sessions) > 0 {
				w.Srv.KillSession(sessions[random.IntN(len(sessions))].ID)
			}
		}},
	}
	trouble.Until(faulty)
	wg.Wait()
	time.Sleep(30 * time.Second)
	w.release(w.obtain(w.lease("last")))
	w.wantHolder("")
	return o
}

// once tries to obtain the lease, holds it for a while, and gives it up in some way.
func once(w *world, o *holders, l *lease.NonBlockingLease, name string, random *rand.Rand) {
	within := func(ms int) (context.Context, context.CancelFunc) {
		return context.WithTimeout(w.Context(), time.Duration(random.IntN(ms))*time.Millisecond)
	}
	ctx, cancel := within(8000)
	defer cancel()
	h, err := l.Obtain(ctx)
	if err != nil {
		for _, expected := range []error{
			context.DeadlineExceeded, session.ErrUncertain, lease.ErrNotObtained, lease.ErrClockSkew, lease.ErrExpired,
		} {
			if errors.Is(err, expected) {
				time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
				return
			}
		}
		w.Errorf("%s: %v", name, err)
		time.Sleep(time.Second)
		return
	}
	if err := o.enter(h, name); err != nil {
		w.Error(err)
	}
	for random.IntN(3) > 0 {
		select {
		case <-h.Context().Done():
		case <-time.After(time.Duration(random.IntN(3000)) * time.Millisecond):
		}
		ctx, cancel := within(3000)
		if err := h.Renew(ctx); err == nil {
			o.mu.Lock()
			o.renew++
			o.mu.Unlock()
		}
		cancel()
	}
	if cause := context.Cause(h.Context()); errors.Is(cause, lease.ErrLost) {
		w.Errorf("%s: nobody takes it, but: %v", name, cause)
	}
	o.leave(h)
	switch random.IntN(3) {
	case 0:
		h.Detach()
	case 1:
		ctx, cancel := within(1000)
		defer cancel()
		_ = h.Release(ctx)
	default:
		_ = h.Release(w.Context())
	}
}
