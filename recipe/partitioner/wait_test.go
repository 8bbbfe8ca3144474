package partitioner_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/recipe/partitioner"
)

func TestWaitForAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := w.member("p0", []string{"0"}, partitioner.Options{TimeBoundary: time.Minute})
		start := time.Now()
		if acquired, err := m.WaitForAcquire(t.Context()); acquired || !errors.Is(err, partitioner.ErrNotStarted) || time.Since(start) != 0 {
			t.Errorf("not started: %v, %v after %v", acquired, err, time.Since(start))
		}
		m.start()
		start = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if acquired, err := m.WaitForAcquire(ctx); acquired || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("its context ends: %v, %v after %v", acquired, err, time.Since(start))
		}
		m.releaseSet() // there is nothing to release
		start = time.Now()
		if acquired, err := m.WaitForAcquire(t.Context()); acquired || err != nil || time.Since(start) != 30*time.Second {
			t.Errorf("its time has passed: %v, %v after %v", acquired, err, time.Since(start))
		}
		if acquired, err := m.WaitForAcquire(t.Context()); !acquired || err != nil || time.Since(start) < 58*time.Second {
			t.Errorf("%v, %v after %v", acquired, err, time.Since(start))
		}
		start = time.Now()
		if acquired, err := m.WaitForAcquire(ctx); !acquired || err != nil || time.Since(start) != 0 {
			t.Errorf("ACQUIRED already: %v, %v after %v", acquired, err, time.Since(start))
		}
	})
}

// AcquireTimeout and the context end together: WaitForAcquire returns the context's error.
func TestWaitForAcquireContextComesFirst(t *testing.T) {
	for range 20 { // a select takes either of two that are ready
		synctest.Test(t, func(t *testing.T) {
			m := newWorld(t).member("p0", []string{"0"}, partitioner.Options{TimeBoundary: time.Minute, AcquireTimeout: time.Second})
			m.start()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			late := lateContext{ctx, func() { time.Sleep(2 * time.Second) }}
			if acquired, err := m.WaitForAcquire(late); acquired || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, %v", acquired, err)
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
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := w.join("p0", "0")
		acquired, err := m.WaitForAcquire(lateContext{t.Context(), func() {
			if m.Allocating() {
				m.wait(partitioner.Acquired)
				w.join("p1", "0")
				m.wait(partitioner.Release)
			}
		}})
		if acquired || err != nil {
			t.Errorf("later: %v, %v", acquired, err)
		}
		if acquired, err := m.WaitForAcquire(t.Context()); acquired || err != nil {
			t.Errorf("at once: %v, %v", acquired, err)
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
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.Net.Client("p0").Delay(10 * time.Millisecond) // so that the boundary begins after the first wait
				p, err := partitioner.New(w.Session("p0"), path, []string{"0"}, partitioner.Options{})
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				if err := p.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				changed := make(chan struct{})
				go func() {
					defer close(changed)
					change := func() error { return w.Srv.Create(guest, nil) }
					for _, after := range tt.guests {
						time.Sleep(after)
						if err := change(); err != nil {
							t.Error(err)
						}
						change = func() error { return w.Srv.Delete(guest) }
					}
				}()
				waits := 0
				for worked := false; !worked; {
					switch {
					case p.Failed():
						err = p.Snapshot().Err
					case p.MustRelease():
						err = p.ReleaseSet(t.Context())
					case p.Acquired():
						worked = true
					case p.Allocating():
						var acquired bool
						if acquired, err = p.WaitForAcquire(t.Context()); !acquired {
							waits++
						}
					}
					if err != nil {
						t.Fatalf("after %v: %v", time.Since(start), err)
					}
				}
				if d := time.Since(start); d < tt.within[0] || d > tt.within[1] || waits != tt.waits {
					t.Errorf("acquired after %v, and %d waits in vain", d, waits)
				}
				<-changed
				if err := p.Finish(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
