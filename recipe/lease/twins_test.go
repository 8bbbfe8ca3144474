package lease_test

import (
	"errors"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// twin returns a handle for a lease of that duration under one identifier for all.
func (w *world) twin(client string, d time.Duration) *lease.NonBlockingLease {
	w.Helper()
	return w.leaseIn(w.session(client), lease.Options{Identifier: "x", Duration: d})
}

// §5 among those of one identifier: one takes the lease over and gives it up, or has a shorter one, while the first is cut off:
// the first relies on its record to its end, so nobody else gets the lease before, and somebody does then.
func TestTwinDoesNotShortenTheLease(t *testing.T) {
	for name, test := range map[string]struct {
		duration time.Duration
		giveUp   func(w *world, h *lease.Held)
	}{
		"released":  {time.Minute, (*world).release},
		"shortened": {5 * time.Second, func(_ *world, h *lease.Held) { h.Detach() }},
		"renewed shorter": {5 * time.Second, func(w *world, h *lease.Held) {
			w.Check(h.Renew(w.Context()))
			h.Detach()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				first, second, other := w.twin("first", time.Minute), w.twin("second", test.duration), w.lease("other")
				h := w.obtain(first)
				end := h.End()
				w.Net.Client("first").BlackHole(zktest.Both)
				time.Sleep(2 * time.Second)
				test.giveUp(w, w.obtain(second))
				time.Sleep(10 * time.Second)
				if taken := w.try(other); taken != nil && h.Valid() {
					w.Errorf(twoHolders+": the first until %v, another until %v", h.End(), taken.End())
				} else {
					w.wantHolder("x")
				}
				w.Net.Client("first").Heal()
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

// atFullSecond waits for the next full second: ends have no fraction.
func (w *world) atFullSecond() {
	time.Sleep(time.Second - time.Duration(time.Now().Nanosecond()) + time.Millisecond)
}

// whileTwinWaits waits for the next full second, so that two write the same end, and calls act when first is about to write the
// record and second waits for the inner lock. It returns second's hold.
func (w *world) whileTwinWaits(second *lease.NonBlockingLease, act func() zktest.Action) <-chan *lease.Held {
	w.Helper()
	w.atFullSecond()
	got := make(chan *lease.Held, 1)
	raced := false
	w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
		if r.Client != "first" || !isRecord(*r) || raced {
			return zktest.Action{}
		}
		raced = true
		go func() {
			h, err := second.Obtain(w.Context())
			w.Check(err)
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

// firstExpires ends the session of the first, and its connection.
func (w *world) firstExpires() zktest.Action {
	for _, s := range w.Srv.Sessions() {
		if s.Client == "first" {
			w.Srv.KillSession(s.ID)
		}
	}
	return zktest.Action{Cut: true}
}

// §5 among those of one identifier: the outcome of a renewal is not known, and another of the identifier, which waits for the
// inner lock, writes the same bytes. It can't be told whose they are. The first keeps its hold as long as it was known to last,
// and a release does not remove the record.
func TestRenewalOfUnknownOutcome(t *testing.T) {
	for name, fate := range map[string]func(w *world) zktest.Action{
		"done":    func(*world) zktest.Action { return zktest.Action{LoseReply: true} },
		"cut":     func(*world) zktest.Action { return zktest.Action{Cut: true} },
		"expired": (*world).firstExpires,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				first, second, other := w.twin("first", time.Minute), w.twin("second", time.Minute), w.lease("other")
				h := w.obtain(first)
				end := h.End()
				time.Sleep(5 * time.Second)
				got := w.whileTwinWaits(second, func() zktest.Action { return fate(w) })
				if err := h.Renew(w.Context()); !errors.Is(err, session.ErrUncertain) {
					w.Errorf("got %v", err)
				}
				next := <-got
				time.Sleep(5 * time.Second)
				if !next.Valid() || h.End().After(end) {
					w.Errorf("the second holds: %v; the first until %v, it knew %v", next.Valid(), h.End(), end)
				}
				w.Net.Client("second").BlackHole(zktest.ToClient)
				w.release(h)
				if !next.Valid() {
					w.Error("the second lost its lease")
				}
				if w.try(other) != nil {
					w.Errorf(twoHolders+": the second of one identifier until %v, and another", next.End())
				} else {
					w.wantHolder("x")
				}
				w.Net.Client("second").Heal()
			})
		})
	}
}
