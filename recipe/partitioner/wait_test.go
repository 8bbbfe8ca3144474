package partitioner_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/partitioner"
)

func TestWaitForAcquire(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.member("p0", []string{"0"}, partitioner.Options{TimeBoundary: time.Minute})
		start := time.Now()
		if acquired, err := m.WaitForAcquire(w.Context()); acquired || !errors.Is(err, partitioner.ErrNotStarted) || time.Since(start) != 0 {
			w.Errorf("not started: %v, %v after %v", acquired, err, time.Since(start))
		}
		m.start()
		start = time.Now()
		ctx := w.Within(time.Second)
		if acquired, err := m.WaitForAcquire(ctx); acquired || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			w.Errorf("its context ends: %v, %v after %v", acquired, err, time.Since(start))
		}
		m.releaseSet() // there is nothing to release
		start = time.Now()
		if acquired, err := m.WaitForAcquire(w.Context()); acquired || err != nil || time.Since(start) != 30*time.Second {
			w.Errorf("its time has passed: %v, %v after %v", acquired, err, time.Since(start))
		}
		if acquired, err := m.WaitForAcquire(w.Context()); !acquired || err != nil || time.Since(start) < 58*time.Second {
			w.Errorf("%v, %v after %v", acquired, err, time.Since(start))
		}
		start = time.Now()
		if acquired, err := m.WaitForAcquire(ctx); !acquired || err != nil || time.Since(start) != 0 {
			w.Errorf("ACQUIRED already: %v, %v after %v", acquired, err, time.Since(start))
		}
	})
}

// AcquireTimeout and the context end together: WaitForAcquire returns the context's error.
func TestWaitForAcquireContextComesFirst(t *testing.T) {
	for range 20 { // a select takes either of two that are ready
		inWorld(t, func(w *world) {
			m := w.member("p0", []string{"0"}, partitioner.Options{TimeBoundary: time.Minute, AcquireTimeout: time.Second})
			m.start()
			ctx := w.Within(time.Second)
			late := lateContext{ctx, func() { time.Sleep(2 * time.Second) }}
			if acquired, err := m.WaitForAcquire(late); acquired || !errors.Is(err, context.DeadlineExceeded) {
				w.Errorf("%v, %v", acquired, err)
			}
		})
	}
}

// lateContext is a context whose end is read late.
type lateContext struct {
	context.Context

	later func()
}

func (c lateContext) Done() <-chan struct{} {
	c.later()
	return c.Context.Done()
}

// The set is acquired and to be released again before WaitForAcquire reads the state, for the first time or later. That is no
// error, or a loop over the states would fail now and then.
func TestWaitForAcquireLooksLate(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.join("p0", "0")
		acquired, err := m.WaitForAcquire(lateContext{w.Context(), func() {
			if m.Allocating() {
				m.wait(partitioner.Acquired)
				w.join("p1", "0")
				m.wait(partitioner.Release)
			}
		}})
		if acquired || err != nil {
			w.Errorf("later: %v, %v", acquired, err)
		}
		if acquired, err := m.WaitForAcquire(w.Context()); acquired || err != nil {
			w.Errorf("at once: %v, %v", acquired, err)
		}
	})
}

// A member runs the loop of kazoo's documentation with all defaults, alone, and beside others that come and go, so that the set
// is divided only during the third wait.
func TestLoopOverTheStates(t *testing.T) {
	for what, tt := range map[string]struct {
		guests []time.Duration // when another member comes or goes
		waits  int             // how many waits end without the set
		within [2]time.Duration
	}{
		"alone": {within: [2]time.Duration{30 * time.Second, 31 * time.Second}, waits: 1},
		"guests": {
			guests: []time.Duration{20 * time.Second, 25 * time.Second},
			within: [2]time.Duration{75 * time.Second, 76 * time.Second}, waits: 2,
		},
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.Net.Client("p0").Delay(10 * time.Millisecond) // so that the boundary begins after the first wait
				p, err := partitioner.New(w.Session("p0"), path, []string{"0"}, partitioner.Options{})
				w.Must(err)
				start := time.Now()
				w.Must(p.Start(w.Context()))
				changed := make(chan struct{})
				go func() {
					defer close(changed)
					change := func() error { return w.Srv.Create(guest, nil) }
					for _, after := range tt.guests {
						time.Sleep(after)
						w.Check(change())
						change = func() error { return w.Srv.Delete(guest) }
					}
				}()
				waits := 0
				for worked := false; !worked; {
					switch {
					case p.Failed():
						err = p.Snapshot().Err
					case p.MustRelease():
						err = p.ReleaseSet(w.Context())
					case p.Acquired():
						worked = true
					case p.Allocating():
						var acquired bool
						if acquired, err = p.WaitForAcquire(w.Context()); !acquired {
							waits++
						}
					}
					if err != nil {
						w.Fatalf("after %v: %v", time.Since(start), err)
					}
				}
				if d := time.Since(start); d < tt.within[0] || d > tt.within[1] || waits != tt.waits {
					w.Errorf("acquired after %v, and %d waits in vain", d, waits)
				}
				<-changed
				w.Check(p.Finish(w.Context()))
			})
		})
	}
}
