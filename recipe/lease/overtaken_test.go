package lease_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// endsAt is a context that ends when somebody begins to wait for its end for the n-th time since it was armed.
type endsAt struct {
	context.Context

	end context.CancelFunc

	mu    sync.Mutex
	left  int
	armed bool
}

func newEndsAt(ctx context.Context, n int) *endsAt {
	e := &endsAt{left: n}
	e.Context, e.end = context.WithCancel(ctx)
	return e
}

func (e *endsAt) arm() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.armed = true
}

func (e *endsAt) Done() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.armed {
		if e.left--; e.left == 0 {
			e.end()
		}
	}
	return e.Context.Done()
}

// giveUpAtEachStep has a call given up at each step after the look at the record, one after the other: also when its write was
// begun and has not been handed to the connection. On one processor what is begun later runs first.
func giveUpAtEachStep(t *testing.T, test func(w *world, try func(call func(ctx context.Context) error) error)) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	uncertain := 0
	for n := 1; ; n++ {
		done := false
		inWorld(t, func(w *world) {
			test(w, func(call func(ctx context.Context) error) error {
				ctx := newEndsAt(w.Context(), n)
				defer ctx.end()
				w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
					if r.Op == zktest.OpGetData && r.Path == node {
						ctx.arm()
					}
					return zktest.Action{}
				})
				err := call(ctx)
				w.Srv.SetHook(nil)
				if done = err == nil; errors.Is(err, session.ErrUncertain) {
					uncertain++
				}
				if err != nil && !errors.Is(err, context.Canceled) {
					w.Errorf("given up at step %d: %v", n, err)
				}
				return err
			})
		})
		if done || t.Failed() {
			break
		}
	}
	if uncertain == 0 {
		t.Error("given up at no step of a write: nothing was tested")
	}
}

// A try is given up at each of its steps: no look at what became of its write overtakes that.
func TestLookDoesNotOvertakeTheWrite(t *testing.T) {
	giveUpAtEachStep(t, func(w *world, try func(call func(ctx context.Context) error) error) {
		l := w.lease("a")
		if try(func(ctx context.Context) error { _, err := l.Obtain(ctx); return err }) == nil {
			return
		}
		time.Sleep(10 * time.Second)
		w.wantHolder("")
		w.release(w.obtain(l))
	})
}

// The same with a renewal: it is known what became of it.
func TestLookDoesNotOvertakeTheRenewal(t *testing.T) {
	giveUpAtEachStep(t, func(w *world, try func(call func(ctx context.Context) error) error) {
		h := w.obtain(w.lease("a"))
		time.Sleep(10 * time.Second)
		_ = try(h.Renew)
		time.Sleep(10 * time.Second)
		r, err := lease.Decode([]byte(w.record()))
		if err != nil || !h.Valid() || !r.End.Equal(h.End()) {
			w.Errorf("%v; valid: %v; ends at %v, as written at %v: %v", err, h.Valid(), h.End(), r.End, context.Cause(h.Context()))
		}
		w.release(h)
		w.wantHolder("")
	})
}

// A write is given up while it is under way: nobody looks what became of it before that has ended.
func TestLookWaitsForTheWrite(t *testing.T) {
	for _, renew := range []bool{false, true} {
		inWorld(t, func(w *world) {
			l := w.lease("a")
			call := func(ctx context.Context) error { _, err := l.Obtain(ctx); return err }
			if renew {
				call = w.obtain(l).Renew
			}
			client := w.Net.Client("a")
			var written, looked atomic.Bool
			w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
				switch {
				case isRecord(*r):
					written.Store(true)
					client.BlackHole(zktest.ToClient)
				case written.Load() && r.Op == zktest.OpSync:
					looked.Store(true)
				}
				return zktest.Action{}
			})
			ctx, cancel := context.WithTimeout(w.Context(), time.Second)
			defer cancel()
			if err := call(ctx); !errors.Is(err, session.ErrUncertain) {
				w.Errorf("got %v", err)
			}
			time.Sleep(time.Second)
			if !written.Load() || looked.Load() {
				w.Errorf("renewal: %v; written: %v, looked at before its end: %v", renew, written.Load(), looked.Load())
			}
			client.Heal()
			time.Sleep(15 * time.Second)
		})
	}
}
