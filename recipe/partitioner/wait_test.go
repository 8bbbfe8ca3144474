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
		if err := m.WaitForAcquire(t.Context()); !errors.Is(err, partitioner.ErrNotStarted) || time.Since(start) != 0 {
			t.Errorf("not started: %v after %v", err, time.Since(start))
		}
		m.start()
		start = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.WaitForAcquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		m.releaseSet() // there is nothing to release
		if err := m.WaitForAcquire(t.Context()); err != nil || time.Since(start) < 59*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// lateContext is a context that is asked for its end only later.
type lateContext struct {
	context.Context

	later func()
}

func (c lateContext) Done() <-chan struct{} {
	c.later()
	return c.Context.Done()
}

// The set is acquired and to be released again before WaitForAcquire looks. That is no error, or a loop over the states would
// fail now and then.
func TestWaitForAcquireLooksLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := w.join("p0", "0")
		err := m.WaitForAcquire(lateContext{t.Context(), func() {
			if m.Allocating() {
				m.wait(partitioner.Acquired)
				w.join("p1", "0")
				m.wait(partitioner.Release)
			}
		}})
		if err != nil {
			t.Error(err)
		}
	})
}

// The loop of kazoo's documentation, with the default options: the first allocation takes longer than the time boundary.
func TestLoopOverTheStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p, err := partitioner.New(w.session("p0"), path, []string{"0"}, partitioner.Options{})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		for worked := false; !worked; {
			switch {
			case p.Failed():
				err = p.Snapshot().Err
			case p.MustRelease():
				err = p.ReleaseSet(t.Context())
			case p.Acquired():
				worked = true
			case p.Allocating():
				err = p.WaitForAcquire(t.Context())
			}
			if err != nil {
				t.Fatalf("after %v: %v", time.Since(start), err)
			}
		}
		if d := time.Since(start); d < 30*time.Second || d > 31*time.Second {
			t.Errorf("acquired after %v", d)
		}
		if err := p.Finish(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
