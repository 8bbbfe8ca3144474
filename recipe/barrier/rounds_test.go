package barrier_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// atNextLook calls do just before the client's next read of the directory.
func (w *world) atNextLook(client string, do func()) {
	w.Steps(recipetest.Before(func(r zktest.Request) bool { return looks(r) && r.Client == client }, do))
}

// One of three members was away. All three may have been there at one time meanwhile, or two may have come and left one after the
// other: Enter can't tell which. If all three can't have been there at one time, Enter waits on.
func TestUndecided(t *testing.T) {
	for what, tt := range map[string]struct {
		do   func(w *world)
		want error // nil: it goes on
	}{
		"two, perhaps at once": {func(w *world) {
			w.make(lowest, highest, "ready")
			w.remove("ready", lowest, highest)
		}, session.ErrUncertain},
		"one and ready": {func(w *world) {
			w.make(lowest, highest, "ready")
			w.remove("ready", highest)
		}, session.ErrUncertain},
		"two, and nobody was told": {func(w *world) {
			w.make(lowest, highest)
			w.remove(lowest, highest)
		}, nil},
		"one": {func(w *world) {
			w.make(lowest)
			w.remove(lowest)
		}, nil},
	} {
		inWorld(t, func(w *world) {
			d := w.double(w.Session("a"), 3, "")
			ctx, cancel := context.WithCancel(w.Context())
			defer cancel()
			c := w.enter(ctx, d)
			w.goesOn(c)
			w.Unplug("a")
			time.Sleep(time.Second)
			tt.do(w)
			w.Net.Client("a").Heal()
			if tt.want == nil {
				w.goesOn(c)
				cancel()
				w.ended(c, context.Canceled)
			} else {
				w.ended(c, tt.want)
			}
			time.Sleep(5 * time.Second)
			if _, _, ok := w.Srv.Get(d.Node()); ok {
				w.Errorf("%s: it exists still", what)
			}
		})
	}
}

// A member that waits goes and comes again under its name between two reads, and the number is complete: that does not show that
// ready existed.
func TestNameUsedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		d := w.double(w.Session("a"), 3, "")
		c := w.enter(w.Context(), d)
		w.goesOn(c)
		w.make(highest)
		w.goesOn(c)
		w.Unplug("a")
		w.remove(highest)
		w.make(highest, lowest)
		w.Net.Client("a").Heal()
		w.goesOn(c)
		w.make("ready")
		m := w.in(c)
		w.remove(lowest, highest)
		w.ended(w.leave(w.Context(), m), nil)
	})
}

// Members go through round after round on one path, while links are slow, and break for those that leave: nobody enters a round
// before all have left the round before.
func TestRounds(t *testing.T) {
	for n := 2; n <= 4; n++ {
		inWorld(t, func(w *world) {
			const rounds = 30
			var begun, left atomic.Int64
			var wg sync.WaitGroup
			stop := make(chan struct{})
			for i := range n {
				name := string(rune('a' + i))
				s := w.Session(name)
				d := w.double(s, n, name)
				random := rand.New(rand.NewPCG(uint64(n), uint64(i)))
				wg.Go(func() {
					for round := range int64(rounds) {
						time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond)
						begun.Add(1)
						m, err := d.Enter(w.Context())
						if err != nil {
							w.Errorf("%s: round %d: %v", name, round, err)
							return
						}
						if b, l := begun.Load(), left.Load(); b < int64(n)*(round+1) || l < int64(n)*round {
							w.Errorf("%s: in round %d when %d had begun and %d had left", name, round, b, l)
						}
						time.Sleep(time.Duration(100+random.IntN(3)) * time.Millisecond) // longer than some round trips
						left.Add(1)
						if err := m.Leave(w.Context()); err != nil {
							w.Errorf("%s: round %d: %v", name, round, err)
							return
						}
						if l := left.Load(); l < int64(n)*(round+1) {
							w.Errorf("%s: left round %d when %d had left", name, round, l)
						}
					}
				})
			}
			wg.Go(func() {
				random := rand.New(rand.NewPCG(uint64(n), 99))
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Duration(random.IntN(60)) * time.Millisecond):
					}
					if random.IntN(3) == 0 {
						w.Srv.LoseReply(1, is(zktest.OpDelete))
					} else {
						w.Net.Client(string(rune('a' + random.IntN(n)))).Delay(time.Duration(random.IntN(5)) * time.Millisecond)
					}
				}
			})
			start := time.Now()
			for left.Load() < int64(n*rounds) && time.Since(start) < 10*time.Minute && !w.Failed() {
				time.Sleep(time.Second)
			}
			close(stop)
			if left.Load() < int64(n*rounds) {
				w.Fatalf("%d of %d; znodes:\n%s", left.Load(), n*rounds, w.Srv.Dump())
			}
			wg.Wait()
		})
	}
}
