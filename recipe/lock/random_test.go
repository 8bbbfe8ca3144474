package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/zktest"
)

// holders checks that nobody holds the lock beside another, unless both are readers.
type holders struct {
	mu    sync.Mutex
	live  map[*lock.Held]string
	token int64 // the largest
	wrote int64 // the largest of a writer
	count int
	pairs int // of readers at once
}

// reads reports whether the client of this name is a reader.
func reads(who string) bool { return strings.HasPrefix(who, "reader") }

// enter records a new hold, and checks that the holds before it have ended.
func (o *holders) enter(h *lock.Held, who string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for other, name := range o.live {
		if other.Valid() {
			if reads(name) && reads(who) {
				o.pairs++
				continue
			}
			return fmt.Errorf("%s holds %s while %s holds %s", who, h.Node(), name, other.Node())
		}
	}
	before := o.token
	if reads(who) {
		before = o.wrote
	}
	if h.Token() <= before {
		return fmt.Errorf("%s has token %d after %d", who, h.Token(), before)
	}
	o.live[h], o.token = who, max(o.token, h.Token())
	if !reads(who) {
		o.wrote = h.Token()
	}
	o.count++
	return nil
}

func (o *holders) leave(h *lock.Held) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.live, h)
}

// Clients acquire, give up, hold and release at random while links break, freeze and lose replies. The lock never has two
// holders, tokens grow, all clients acquire the lock again when the faults have ended, and no contender is left.
func TestRandomFaults(t *testing.T) {
	total := 0
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) { total += randomFaults(newWorld(t), seed, "a", "b", "c", "d").count })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("acquired %d times", total)
	if total < 500 {
		t.Error("hardly anything was tried")
	}
}

// The same with writers, readers and a client whose contenders are persistent.
func TestRandomFaultsReadWrite(t *testing.T) {
	total, pairs := 0, 0
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) {
			o := randomFaults(newWorld(t), seed, "writer a", "writer persistent", "reader a", "reader b", "reader persistent")
			total, pairs = total+o.count, pairs+o.pairs
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("acquired %d times, %d times beside another reader", total, pairs)
	if total < 300 || pairs < 20 {
		t.Error("hardly anything was tried")
	}
}

// handle returns the client's handle of the kind that its name says.
func (w *world) handle(name string) *lock.Lock {
	w.Helper()
	newLock := lock.New
	switch {
	case reads(name):
		newLock = lock.NewRead
	case strings.HasPrefix(name, "writer"):
		newLock = lock.NewWrite
	}
	return w.make(newLock, w.Session(name), lock.Options{Identifier: name, Persistent: strings.HasSuffix(name, "persistent")})
}

func randomFaults(w *world, seed uint64, names ...string) *holders {
	o := &holders{live: map[*lock.Held]string{}}
	faulty, stop := context.WithTimeout(w.Context(), 10*time.Minute)
	defer stop()
	var locks []*lock.Lock
	var wg sync.WaitGroup
	for i, name := range names {
		l := w.handle(name)
		locks = append(locks, l)
		for worker := range 1 + i%2 {
			random := rand.New(rand.NewPCG(seed, uint64(10*i+worker+2)))
			wg.Go(func() {
				for faulty.Err() == nil {
					once(w, o, l, name, random)
				}
			})
		}
	}
	trouble := recipetest.Trouble{
		Server: w.Srv, Network: w.Net, Clients: names, Seed: seed,
		Pause: 4 * time.Second, Delay: 800 * time.Millisecond,
		Losses: 3, Lose: []func(zktest.Request) bool{
			is(zktest.OpCreate), is(zktest.OpDelete), is(zktest.OpGetChildren2), is(zktest.OpExists),
		},
	}
	trouble.Until(faulty)
	wg.Wait()
	for i, l := range locks {
		ctx, cancel := context.WithTimeout(w.Context(), 30*time.Second)
		h, err := l.Acquire(ctx)
		if err != nil {
			w.Errorf("%s: after the faults: %v", names[i], err)
		} else {
			w.release(h)
		}
		cancel()
	}
	w.wantContenders(0)
	for _, name := range w.Srv.Children(path) {
		w.Errorf("left: %s", name)
	}
	return o
}

// once tries to acquire the lock, holds it for a while and releases it.
func once(w *world, o *holders, l *lock.Lock, name string, random *rand.Rand) {
	ctx, cancel := context.WithTimeout(w.Context(), time.Duration(random.IntN(20_000))*time.Millisecond)
	defer cancel()
	acquire := l.Acquire
	if random.IntN(4) == 0 {
		acquire = l.TryAcquire
	}
	h, err := acquire(ctx)
	if err != nil {
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, lock.ErrNotAcquired) {
			w.Errorf("%s: %v", name, err)
		}
		time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
		return
	}
	if err := o.enter(h, name); err != nil {
		w.Error(err)
	}
	select {
	case <-h.Context().Done():
		if cause := context.Cause(h.Context()); errors.Is(cause, lock.ErrLost) {
			w.Errorf("%s: nobody removes contenders, but: %v", name, cause)
		}
	case <-time.After(time.Duration(random.IntN(3000)) * time.Millisecond):
	}
	time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond) // the work is stopping
	o.leave(h)
	if random.IntN(2) == 0 {
		ctx, cancel = context.WithTimeout(w.Context(), time.Duration(random.IntN(1000))*time.Millisecond)
		defer cancel()
		_ = h.Release(ctx)
		return
	}
	_ = h.Release(w.Context())
}
