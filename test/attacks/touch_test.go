package attacks_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// freezer is a log that holds up who writes a certain message to it: the goroutine that sends the proofs of life then stands
// still, as all of a process does that was stopped.
type freezer struct {
	slog.Handler
	message string
	d       time.Duration
	once    *sync.Once
}

func (f freezer) Enabled(context.Context, slog.Level) bool { return true }

func (f freezer) Handle(_ context.Context, r slog.Record) error {
	if r.Message == f.message {
		f.once.Do(func() { time.Sleep(f.d) })
	}
	return nil
}

func (f freezer) WithAttrs([]slog.Attr) slog.Handler { return f }

// Execution §4: a proof of life through a follower does not touch the session at the leader before the follower next reports. A
// process that stood still proves itself, and then it and its follower are cut off from the rest.
func TestProofThroughAFollower(t *testing.T) {
	const (
		timeout = 6 * time.Second
		tick    = 500 * time.Millisecond
		still   = 2900 * time.Millisecond // longer, and it would first look for another server
	)
	var o *outcome
	const steps = 5
	for step := range steps {
		o = o.worse(bubble(t, zktest.Options{TickTime: tick}, func(w *world) *outcome {
			var mu sync.Mutex
			armed, proofs := false, 0
			cut := make(chan struct{})
			w.srv.SetHook(func(r *zktest.Request) zktest.Action {
				mu.Lock()
				defer mu.Unlock()
				if r.Client != "a" || !armed {
					return zktest.Action{}
				}
				act := zktest.Action{NoTouch: proofs > 0} // a process that stands still does not send it
				if r.Op != zktest.OpMulti || len(r.Ops) != 1 {
					return act
				}
				switch proofs++; proofs {
				case 2:
					act.Err = zktest.ErrNoAuth // something to be logged
				case 3:
					close(cut)
				}
				return act
			})
			f := freezer{slog.DiscardHandler, "proof of life refused", still - timeout/6, new(sync.Once)}
			time.Sleep(time.Duration(step) * tick / steps) // to let proofs and ticks fall differently
			a := w.member("a", options{session: session.Options{Timeout: timeout, Logger: slog.New(f)}})
			a.owns(5*time.Second, "0")
			b := w.member("b", options{session: session.Options{Timeout: timeout}})
			time.Sleep(20 * time.Second)
			mu.Lock()
			armed = true
			mu.Unlock()
			<-cut
			time.Sleep(time.Millisecond) // the answer arrives
			w.net.Client("a").BlackHole(zktest.Both)
			b.owns(timeout+tick, "0")
			time.Sleep(timeout)
			w.srv.SetHook(nil)
			return w.close()
		}))
	}
	withstood(t, o)
}
