package counter_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/counter"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func (w *world) counter(s *session.Session) *counter.Counter[int64] {
	w.Helper()
	return must[*counter.Counter[int64]](w)(counter.New(s, path, counter.Options[int64]{}))
}

// onSet calls a function at the first write of the number.
func (w *world) onSet(do func() zktest.Action) {
	done := false
	w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
		if r.Op != zktest.OpSetData || done {
			return zktest.Action{}
		}
		done = true
		return do()
	})
	w.Cleanup(func() {
		if !done {
			w.Error("the hook was not used")
		}
	})
}

// The write was not carried out, and nobody else wrote: it is repeated.
func TestLostRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put("5")
		c := w.counter(w.Session("a"))
		w.onSet(func() zktest.Action { return zktest.Action{Cut: true} })
		if v, err := c.Add(t.Context(), 1); err != nil || v != 6 || w.data() != "6" {
			t.Errorf("got %d, %v, %q", v, err, w.data())
		}
	})
}

// The write was carried out and its reply lost: it is not repeated.
func TestLostReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put("5")
		c := w.counter(w.Session("a"))
		w.Srv.LoseReply(1, is(zktest.OpSetData))
		if v, err := c.Add(t.Context(), 1); !errors.Is(err, session.ErrUncertain) || w.data() != "6" {
			t.Errorf("got %d, %v, %q", v, err, w.data())
		}
	})
}

// The znode is deleted and created again with the version that was read, while the reply is missing: it is another znode.
func TestSameVersionOfAnotherZnode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if err := w.Srv.Create(path, []byte("5")); err != nil {
			t.Fatal(err)
		}
		c := w.counter(w.Session("a"))
		w.onSet(func() zktest.Action {
			if err := w.Srv.Delete(path); err != nil {
				t.Error(err)
			}
			if err := w.Srv.Create(path, []byte("5")); err != nil {
				t.Error(err)
			}
			return zktest.Action{Cut: true}
		})
		if v, err := c.Add(t.Context(), 1); !errors.Is(err, session.ErrUncertain) || w.data() != "5" {
			t.Errorf("got %d, %v, %q", v, err, w.data())
		}
	})
}

// The znode is deleted and created again, with the version that was read, before the first or the second write arrives: the write
// replaces a number that was not read.
func TestWrittenToAnotherZnode(t *testing.T) {
	for name, second := range map[string]bool{"first": false, "second": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				if err := w.Srv.Create(path, []byte("57")); err != nil {
					t.Fatal(err)
				}
				c := w.counter(w.Session("a"))
				writes := 0
				w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
					if r.Op != zktest.OpSetData {
						return zktest.Action{}
					}
					if writes++; second && writes == 1 {
						return zktest.Action{Cut: true}
					}
					if err := errors.Join(w.Srv.Delete(path), w.Srv.Create(path, []byte("5"))); err != nil {
						t.Error(err)
					}
					return zktest.Action{}
				})
				if v, err := c.Add(t.Context(), 1); !errors.Is(err, session.ErrUncertain) {
					t.Errorf("got %d, %v, %q", v, err, w.data())
				}
				if last, ok := c.Last(); ok {
					t.Errorf("last: %+v", last)
				}
			})
		})
	}
}

// ending is a context of which Err, but not Done, says that it has ended.
type ending struct {
	context.Context
	ended atomic.Bool
}

func (e *ending) Err() error {
	if e.ended.Load() {
		return errEnough
	}
	return e.Context.Err()
}

var errEnough = errors.New("enough")

// The context ends in the moment in which a change of another process makes Add fail: the error is the context's.
func TestContextEndsWithTheReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put("5")
		c := w.counter(w.Session("a"))
		ctx := &ending{Context: t.Context()}
		w.onSet(func() zktest.Action {
			ctx.ended.Store(true)
			return zktest.Action{Err: zktest.ErrBadVersion}
		})
		_, err := c.Add(ctx, 1)
		if !errors.Is(err, errEnough) || errors.Is(err, session.ErrBadVersion) {
			t.Error(err)
		}
	})
}

// The caller gives up while its write is under way.
func TestGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put("5")
		c := w.counter(w.Session("a"))
		w.onSet(func() zktest.Action {
			w.Net.Client("a").BlackHole(zktest.ToClient)
			return zktest.Action{}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Add(ctx, 1)
		if !errors.Is(err, session.ErrUncertain) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		w.Net.Client("a").Heal()
	})
}

// The session expires between the write and the check after it.
func TestSessionKilled(t *testing.T) {
	for _, written := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.put("5")
			s := w.Session("a")
			c, id := w.counter(s), w.ID(s)
			w.onSet(func() zktest.Action {
				if !written {
					w.Srv.KillSession(id)
				} else {
					w.put("6")
					w.Srv.KillSession(id)
				}
				return zktest.Action{Cut: true}
			})
			v, err := c.Add(t.Context(), 1)
			if w.data() != "6" || (err == nil) == written || written != errors.Is(err, session.ErrUncertain) {
				t.Errorf("written %v: got %d, %v, %q", written, v, err, w.data())
			}
			if w.ID(s) == id {
				t.Error("the session is the same")
			}
		})
	}
}

// Several clients add at random while links break and replies are lost. An addition that returned nil counts once, one with an
// unknown outcome at most once, others not at all.
func TestRandomFaults(t *testing.T) {
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			faulty, stop := context.WithTimeout(t.Context(), 5*time.Minute)
			defer stop()
			var mu sync.Mutex
			var sure, unsure int64
			var wg sync.WaitGroup
			names := []string{"a", "b", "c"}
			for i, name := range names {
				c := w.counter(w.Session(name))
				random := rand.New(rand.NewPCG(seed, uint64(i+2)))
				wg.Go(func() {
					for faulty.Err() == nil {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(10_000))*time.Millisecond)
						_, err := c.Add(ctx, 1)
						cancel()
						mu.Lock()
						switch {
						case err == nil:
							sure++
						case errors.Is(err, session.ErrUncertain):
							unsure++
						case !errors.Is(err, context.DeadlineExceeded):
							t.Errorf("%s: %v", name, err)
						}
						mu.Unlock()
						time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
					}
				})
			}
			trouble := recipetest.Trouble{
				Server: w.Srv, Network: w.Net, Clients: names, Seed: seed,
				Pause: 2 * time.Second, Delay: 300 * time.Millisecond,
				Losses: 2, Lose: []func(zktest.Request) bool{is(zktest.OpSetData)},
			}
			trouble.Until(faulty)
			wg.Wait()
			time.Sleep(time.Minute)
			sum := must[int64](w)(w.counter(w.Session("d")).Get(t.Context()))
			if sum < sure || sum > sure+unsure || sure < 100 || unsure == 0 {
				t.Errorf("seed %d: the sum is %d: %d were added, %d perhaps", seed, sum, sure, unsure)
			}
		})
	}
}
