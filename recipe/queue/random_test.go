package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/queue"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// ledger counts how often each value was put and got.
type ledger struct {
	mu      sync.Mutex
	put     map[string]bool // true: surely
	got     map[string]int
	perhaps map[string]int
	live    map[string]*queue.Held
}

func (l *ledger) do(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// chaos breaks links and loses replies for a while, while workers work.
func chaos(w *world, seed uint64, work func(name string, s *session.Session, random *rand.Rand)) {
	faulty, stop := context.WithTimeout(w.Context(), 90*time.Second)
	defer stop()
	names := []string{"a", "b", "c"}
	var wg sync.WaitGroup
	for i, name := range names {
		s, random := w.Session(name), rand.New(rand.NewPCG(seed, uint64(i+2)))
		wg.Go(func() {
			for faulty.Err() == nil {
				work(name, s, random)
			}
		})
	}
	trouble := recipetest.Trouble{
		Server: w.Srv, Network: w.Net, Clients: names, Seed: seed,
		Pause: 2 * time.Second, Delay: 300 * time.Millisecond,
		Losses: 2, Lose: []func(zktest.Request) bool{
			func(r zktest.Request) bool { return r.Op == zktest.OpDelete || isMulti(r) },
		},
	}
	trouble.Until(faulty)
	wg.Wait()
	time.Sleep(time.Minute)
}

func newLedger() *ledger {
	return &ledger{put: map[string]bool{}, got: map[string]int{}, perhaps: map[string]int{}, live: map[string]*queue.Held{}}
}

// putOne puts a value that nobody else puts.
func (l *ledger) putOne(ctx context.Context, w *world, q putter, random *rand.Rand) {
	value := fmt.Sprint(random.Uint64())
	_, err := q.Put(ctx, []byte(value), random.IntN(3))
	switch {
	case err == nil:
		l.do(func() { l.put[value] = true })
	case errors.Is(err, session.ErrUncertain):
		l.do(func() { l.put[value] = false })
	case !errors.Is(err, context.DeadlineExceeded):
		w.Error(err)
	}
}

// check checks that each value that was put came out once.
func (l *ledger) check(w *world, seed uint64) {
	for value, n := range l.got {
		if _, ok := l.put[value]; !ok || n > 1 {
			w.Errorf("seed %d: %s was got %d times; put: %v", seed, value, n, ok)
		}
	}
	sure := 0
	for value, surely := range l.put {
		if surely {
			sure++
			if l.got[value]+l.perhaps[value] == 0 {
				w.Errorf("seed %d: %s is lost", seed, value)
			}
		}
	}
	if sure < 100 || len(l.perhaps) == 0 {
		w.Errorf("seed %d: hardly anything was tried: %d, %d", seed, sure, len(l.perhaps))
	}
}

func TestRandomFaults(t *testing.T) {
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) {
			w, l := newWorld(t), newLedger()
			chaos(w, seed, func(_ string, s *session.Session, random *rand.Rand) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(5000))*time.Millisecond)
				defer cancel()
				q := w.queue(s)
				l.putOne(ctx, w, q, random)
				value, err := q.Get(ctx)
				switch {
				case err == nil:
					l.do(func() { l.got[string(value)]++ })
				case value != nil && errors.Is(err, session.ErrUncertain):
					l.do(func() { l.perhaps[string(value)]++ })
				case !errors.Is(err, context.DeadlineExceeded):
					t.Error(err)
				}
				time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
			})
			for q := w.queue(w.Session("z")); ; {
				value, err := q.TryGet(t.Context())
				if err != nil {
					break
				}
				l.got[string(value)]++
			}
			l.check(w, seed)
		})
	}
}

func TestRandomFaultsLocking(t *testing.T) {
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) {
			w, l := newWorld(t), newLedger()
			chaos(w, seed, func(_ string, s *session.Session, random *rand.Rand) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(5000))*time.Millisecond)
				defer cancel()
				q := w.locking(s)
				l.putOne(ctx, w, q, random)
				h, err := q.Get(ctx)
				if err != nil {
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					return
				}
				l.do(func() {
					if other := l.live[h.Path()]; other != nil && other.Context().Err() == nil && other.Incarnation().Trusted() {
						t.Errorf("%s is held twice", h.Path())
					}
					l.live[h.Path()] = h
				})
				time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
				if random.IntN(4) == 0 {
					_ = h.Release(ctx)
					return
				}
				switch err := h.Consume(ctx); {
				case err == nil:
					l.do(func() { l.got[string(h.Value())]++ })
				case errors.Is(err, session.ErrUncertain):
					l.do(func() { l.perhaps[string(h.Value())]++ })
				case !errors.Is(err, queue.ErrLost):
					t.Error(err)
				}
			})
			for q := w.locking(w.Session("z")); ; {
				h, err := q.TryGet(t.Context())
				if err != nil {
					break
				}
				w.consume(h)
				l.got[string(h.Value())]++
			}
			w.wantLen(w.locking(w.Session("y")), 0)
			if left := w.Srv.Children(path + "/taken"); len(left) != 0 {
				t.Errorf("left: %q", left)
			}
			l.check(w, seed)
		})
	}
}
