package lease_test

import (
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
