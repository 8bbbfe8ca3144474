package lease_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// The outcome of a write of the record is unknown: the lease is not obtained, or not extended.

// hour returns a handle for an hour's lease in a session of its own.
func (w *world) hour(client, identifier string) *lease.NonBlockingLease {
	w.Helper()
	return w.leaseIn(w.session(client), lease.Options{Identifier: identifier, Duration: time.Hour})
}

// onRecord does something to the first request of "ours" that writes the record.
func (w *world) onRecord(fault func() zktest.Action) {
	w.Steps(recipetest.Step{
		Match: func(r zktest.Request) bool { return r.Client == "ours" && isRecord(r) },
		Do:    func(*zktest.Request) zktest.Action { return fault() },
	})
}

// loseRecord loses the reply to that request.
func (w *world) loseRecord() {
	w.onRecord(func() zktest.Action { return zktest.Action{LoseReply: true} })
}

// cutRecord has that request not arrive, and the client cut off from then on.
func (w *world) cutRecord() (client *zktest.Client) {
	client = w.Net.Client("ours")
	w.onRecord(func() zktest.Action {
		client.Refuse()
		return zktest.Action{Cut: true}
	})
	return client
}

// uncertain checks that a call has failed, and that its outcome is unknown.
func (w *world) uncertain(err error) {
	w.Helper()
	if !errors.Is(err, session.ErrUncertain) {
		w.Errorf("got %v, want %v", err, session.ErrUncertain)
	}
}

// §5: the record was not written, and Python obtains the lease while we can't see that.
func TestUnknownIsNotObtained(t *testing.T) {
	inWorld(t, func(w *world) {
		client := w.cutRecord()
		l := w.by("ours", time.Hour)
		h, err := l.Obtain(w.Within(5 * time.Second))
		w.python("python").mustObtain(10 * time.Minute)
		if h != nil && h.Valid() {
			w.Errorf(twoHolders+": Python, and ours until %v", h.End())
			h.Detach()
		}
		w.uncertain(err)
		client.Heal()
		if _, err := l.Obtain(w.Context()); !errors.Is(err, lease.ErrNotObtained) {
			w.Errorf("again: %v", err)
		}
		w.wantHolder("python")
	})
}

// §5: the record was written, and the reply did not come. Whoever has the identifier takes it over at once, and others wait for
// its end, after a release, too: another of the identifier may rely on it.
func TestOwnUnknownRecordIsTakenOver(t *testing.T) {
	for _, next := range []string{"the same handle", "another process"} {
		t.Run(next, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.loseRecord()
				ours, other := w.by("ours", time.Hour), w.by("other", time.Hour)
				_, err := ours.Obtain(w.Context())
				w.uncertain(err)
				if ours.Held() {
					w.Error("it is held")
				}
				written, err := lease.Decode([]byte(w.record()))
				w.Must(err)
				if w.try(other) != nil {
					w.Fatal(twoHolders + ": another does not wait for the end of the record")
				}
				if next == "another process" {
					ours = w.hour("next", "ours")
				}
				began := time.Now()
				h, err := ours.Obtain(w.Context())
				if err != nil || time.Since(began) > time.Second {
					w.Fatalf(refused+": %v after %v", err, time.Since(began))
				}
				w.release(h)
				if w.try(other) != nil {
					w.Error(twoHolders + ": another does not wait for the end of the record")
				}
				time.Sleep(time.Until(written.End))
				w.release(w.obtain(other))
				w.wantHolder("")
			})
		})
	}
}

// §5c: a renewal was not done, and Python obtains the lease at its end while we can't see that.
func TestUnknownIsNotExtended(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.by("ours", time.Hour)
		h := w.obtain(l)
		end := h.End()
		time.Sleep(10 * time.Minute)
		client := w.cutRecord()
		w.uncertain(h.Renew(w.Within(5 * time.Second)))
		if !h.Valid() {
			w.Errorf(cancelled+": %v", context.Cause(h.Context()))
		}
		time.Sleep(time.Until(end))
		w.python("python").mustObtain(10 * time.Minute)
		if h.Valid() {
			w.Errorf(twoHolders+": Python, and ours until %v", h.End())
		}
		client.Heal()
	})
}

// A renewal was done, and the reply did not come: the hold lasts as long as it did, and the next renewal extends it.
func TestOwnUnknownRenewalIsTakenOver(t *testing.T) {
	inWorld(t, func(w *world) {
		h, other := w.obtain(w.by("ours", time.Hour)), w.by("other", time.Hour)
		end := h.End()
		for range 2 {
			time.Sleep(10 * time.Minute)
			w.loseRecord()
			w.uncertain(h.Renew(w.Context()))
			time.Sleep(10 * time.Minute)
			if !h.Valid() || h.End() != end {
				w.Errorf(cancelled+": %v; until %v, want %v", context.Cause(h.Context()), h.End(), end)
			}
		}
		if err := h.Renew(w.Context()); err != nil || time.Until(h.End()) < 59*time.Minute {
			w.Errorf("until %v: %v", h.End(), err)
		}
		unknown := time.Now().Add(-10 * time.Minute).Add(time.Hour)
		w.release(h)
		if w.try(other) != nil {
			w.Error("others do not wait for the end of the record")
		}
		time.Sleep(time.Until(unknown))
		w.obtain(other)
	})
}

// A try over our own identifier's lease that is given up leaves that one alone.
func TestGivingUpLeavesAnEarlierLease(t *testing.T) {
	inWorld(t, func(w *world) {
		w.obtain(w.hour("before", "ours")).Detach()
		client := w.Net.Client("ours")
		w.onRecord(func() zktest.Action {
			client.BlackHole(zktest.ToClient)
			return zktest.Action{}
		})
		ctx := w.Within(2 * time.Second)
		began := time.Now()
		_, err := w.by("ours", time.Hour).Obtain(ctx)
		w.uncertain(err)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 2*time.Second {
			w.Errorf("%v after %v", err, time.Since(began))
		}
		client.Heal()
		time.Sleep(15 * time.Second)
		w.wantHolder("ours")
	})
}

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

// A try is given up while the clocks are compared, of which the answer is missing: nothing was written. Another try of the same
// handle, which waits for the first, ends with its own context.
func TestGivenUpBeforeTheWrite(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lease("a")
		client := w.Net.Client("a")
		w.Steps(recipetest.Before(is(zktest.OpSetData), func() { client.BlackHole(zktest.ToClient) }))
		first := recipetest.Later(func() (*lease.Held, error) { return l.Obtain(w.Within(2 * time.Second)) })
		time.Sleep(time.Second)
		if _, err := l.Obtain(w.Within(500 * time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) || first.Ended() {
			w.Errorf("beside the first, which has ended: %v: %v", first.Ended(), err)
		}
		<-first.Done
		if !errors.Is(first.Err, context.DeadlineExceeded) || errors.Is(first.Err, session.ErrUncertain) {
			w.Errorf("given up: %v", first.Err)
		}
		client.Heal()
		time.Sleep(5 * time.Second)
		w.wantHolder("")
		w.release(w.obtain(l))
	})
}

// A call is given up at each step after the look at the record, one after the other: the record is as it was unless the outcome
// is unknown, and the next call of the identifier succeeds.
func TestGivenUpAtEachStep(t *testing.T) {
	for _, renews := range []bool{false, true} {
		uncertain := 0
		for n, done := 1, false; !done && !t.Failed(); n++ {
			inWorld(t, func(w *world) {
				l := w.by("ours", time.Hour)
				call := func(ctx context.Context) error { _, err := l.Obtain(ctx); return err }
				if renews {
					call = w.obtain(l).Renew
					time.Sleep(10 * time.Second)
				}
				before := w.record()
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
				time.Sleep(10 * time.Second)
				switch done = err == nil; {
				case done:
					return
				case errors.Is(err, session.ErrUncertain):
					uncertain++
				case w.record() != before || !errors.Is(err, context.Canceled):
					w.Errorf("given up at step %d: %v; record %s, was %s", n, err, w.record(), before)
				}
				if err := call(w.Context()); err != nil {
					w.Errorf("given up at step %d, and again: %v", n, err)
				}
			})
		}
		if uncertain == 0 {
			t.Errorf("renewal: %v; given up at no step of a write: nothing was tested", renews)
		}
	}
}
