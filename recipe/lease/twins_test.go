package lease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/zktest"
)

// twin returns a handle for a lease of that duration under one identifier for all.
func (w *world) twin(client string, d time.Duration) *lease.NonBlockingLease {
	w.Helper()
	return w.leaseIn(w.session(client), lease.Options{Identifier: "x", Duration: d})
}

// A process of the same identifier takes the lease over and gives it up, or has a shorter one, while the first is cut
// off: the first relies on its record to its end, so nobody else gets the lease before, and somebody does then.
func TestTwinDoesNotShortenTheLease(t *testing.T) {
	for name, test := range map[string]struct {
		duration time.Duration
		giveUp   func(w *world, h *lease.Held)
	}{
		"released":  {time.Minute, (*world).release},
		"shortened": {5 * time.Second, func(_ *world, h *lease.Held) { h.Detach() }},
		"renewed shorter": {5 * time.Second, func(w *world, h *lease.Held) {
			if err := h.Renew(w.Context()); err != nil {
				w.Error(err)
			}
			h.Detach()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				first, second, other := w.twin("first", time.Minute), w.twin("second", test.duration), w.lease("other")
				h := w.obtain(first)
				end := h.End()
				w.nw.Client("first").BlackHole(zktest.Both)
				time.Sleep(2 * time.Second)
				test.giveUp(w, w.obtain(second))
				w.wantHolder("x")
				time.Sleep(10 * time.Second)
				if taken := w.try(other); taken != nil && h.Valid() {
					w.Errorf("two identifiers: the first until %v, another until %v", h.End(), taken.End())
				}
				w.nw.Client("first").Heal()
				w.ended(h, lease.ErrLost)
				time.Sleep(time.Until(end))
				w.release(w.obtain(other))
				w.wantHolder("")
			})
		})
	}
}

// A handle knows that its own earlier hold has ended: it removes the record.
func TestReleaseAfterADetach(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lease("a")
		w.obtain(l).Detach()
		time.Sleep(time.Second)
		w.release(w.obtain(l))
		w.wantHolder("")
	})
}

// whileTwinWaits waits for the next full second, so that two write the same end, and calls act when first is about to
// write the record and second waits for the inner lock. It returns second's hold.
func (w *world) whileTwinWaits(second *lease.NonBlockingLease, act func() zktest.Action) <-chan *lease.Held {
	w.Helper()
	time.Sleep(time.Second - time.Duration(time.Now().Nanosecond()) + time.Millisecond)
	got := make(chan *lease.Held, 1)
	raced := false
	w.srv.SetHook(func(r *zktest.Request) zktest.Action {
		if r.Client != "first" || !isRecord(*r) || raced {
			return zktest.Action{}
		}
		raced = true
		go func() {
			h, err := second.Obtain(w.Context())
			if err != nil {
				w.Error(err)
			}
			got <- h
		}()
		time.Sleep(100 * time.Millisecond)
		return act()
	})
	w.Cleanup(func() {
		if !raced {
			w.Error("nothing was tested")
		}
	})
	return got
}

// A try is given up, and a second process of its identifier, which waits for the inner lock, writes the same bytes. They
// are not removed: whether the first write was made or not, and when its outcome is not known before its session
// is over.
func TestGivingUpLeavesATwinsRecord(t *testing.T) {
	for name, fate := range map[string]func(w *world) zktest.Action{
		"made":    func(*world) zktest.Action { return zktest.Action{} },
		"refused": func(*world) zktest.Action { return zktest.Action{Err: zktest.ErrBadVersion} },
		"lost":    func(*world) zktest.Action { return zktest.Action{LoseReply: true} },
		"expired": func(w *world) zktest.Action {
			for _, s := range w.srv.Sessions() {
				if s.Client == "first" {
					w.srv.KillSession(s.ID)
				}
			}
			return zktest.Action{Cut: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				first, second, other := w.twin("first", time.Minute), w.twin("second", time.Minute), w.lease("other")
				ctx, cancel := context.WithCancel(w.Context())
				got := w.whileTwinWaits(second, func() zktest.Action {
					cancel()
					time.Sleep(time.Millisecond)
					return fate(w)
				})
				if _, err := first.Obtain(ctx); !errors.Is(err, context.Canceled) {
					w.Errorf("got %v", err)
				}
				h := <-got
				w.nw.Client("second").BlackHole(zktest.Both)
				time.Sleep(5 * time.Second)
				if w.try(other) != nil && h.Valid() {
					w.Error("two identifiers have it")
				}
				w.nw.Client("second").Heal()
				w.release(h)
				if w.record() != "" && name != "expired" {
					w.Errorf("left: %s", w.record())
				}
			})
		})
	}
}

// A renewal is given up and was not made, and a second process of the identifier writes the same bytes: the first does
// not take them for its own.
func TestRenewalDoesNotTakeATwinsRecord(t *testing.T) {
	for name, fate := range map[string]zktest.Action{
		"refused": {Err: zktest.ErrBadVersion},
		"cut":     {Cut: true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				first, second := w.twin("first", time.Minute), w.twin("second", time.Minute)
				h := w.obtain(first)
				time.Sleep(5 * time.Second)
				ctx, cancel := context.WithCancel(w.Context())
				got := w.whileTwinWaits(second, func() zktest.Action {
					cancel()
					return fate
				})
				if err := h.Renew(ctx); !errors.Is(err, context.Canceled) {
					w.Errorf("got %v", err)
				}
				next := <-got
				time.Sleep(time.Second)
				w.ended(h, lease.ErrLost)
				if !next.Valid() {
					w.Error("the newest lost its hold")
				}
				w.release(h)
				w.wantHolder("x")
			})
		})
	}
}

// The session of a renewal ends before its outcome is known, and another of the identifier had the inner lock since. The
// bytes are the same; it can't be told whose they are. The first keeps its hold as long as it was known to last, and
// a release does not remove the record.
func TestRenewalOfUnknownOutcome(t *testing.T) {
	inWorld(t, func(w *world) {
		first, second, other := w.twin("first", time.Minute), w.twin("second", time.Minute), w.lease("other")
		h := w.obtain(first)
		end := h.End()
		time.Sleep(5 * time.Second)
		got := w.whileTwinWaits(second, func() zktest.Action {
			for _, s := range w.srv.Sessions() {
				if s.Client == "first" {
					w.srv.KillSession(s.ID)
				}
			}
			return zktest.Action{Cut: true}
		})
		ctx, cancel := context.WithTimeout(w.Context(), 50*time.Millisecond)
		defer cancel()
		if err := h.Renew(ctx); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("got %v", err)
		}
		next := <-got
		time.Sleep(5 * time.Second)
		if !next.Valid() || h.End().After(end) {
			w.Errorf("the second holds: %v; the first until %v, it knew %v", next.Valid(), h.End(), end)
		}
		if h.Valid() {
			if err := h.Release(w.Context()); err == nil {
				w.Error("a release says that the record is gone, or stays with its end")
			}
		}
		w.wantHolder("x")
		if !next.Valid() || w.try(other) != nil {
			w.Error("the second lost its lease")
		}
	})
}
