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

// §5 among those of one identifier: a try is given up, and a second process, which waits for the inner lock, writes the same
// bytes. They are not removed: whether the first write was made or not, and when its outcome is not known before its session is
// over.
func TestGivingUpLeavesATwinsRecord(t *testing.T) {
	for name, fate := range map[string]func(w *world) zktest.Action{
		"made":    func(*world) zktest.Action { return zktest.Action{} },
		"refused": func(*world) zktest.Action { return zktest.Action{Err: zktest.ErrBadVersion} },
		"lost":    func(*world) zktest.Action { return zktest.Action{LoseReply: true} },
		"expired": (*world).firstExpires,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				first, second, other := w.twin("first", time.Minute), w.twin("second", time.Minute), w.lease("other")
				h := w.givesUpBeside(first, second, fate)
				w.Net.Client("second").BlackHole(zktest.Both)
				time.Sleep(5 * time.Second)
				if w.try(other) != nil && h.Valid() {
					w.Errorf(twoHolders+": the second of one identifier until %v, and another", h.End())
				}
				w.Net.Client("second").Heal()
				w.release(h)
			})
		})
	}
}

// §5 among those of one identifier: a try is given up, and the second process writes the same bytes: its release removes the
// record, which is surely its own.
func TestTwinReleasesBesideATryThatWasGivenUp(t *testing.T) {
	for name, fate := range map[string]zktest.Action{
		"made":    {},
		"refused": {Err: zktest.ErrBadVersion},
		"lost":    {LoseReply: true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				first, second, other := w.twin("first", time.Minute), w.twin("second", time.Minute), w.lease("other")
				h := w.givesUpBeside(first, second, func(*world) zktest.Action { return fate })
				w.Net.Client("second").BlackHole(zktest.Both)
				time.Sleep(5 * time.Second)
				_ = w.try(other)
				w.Net.Client("second").Heal()
				w.release(h)
				if w.record() != "" {
					w.Errorf("left: %s", w.record())
				}
			})
		})
	}
}

// §5 among those of one identifier, why a try that is given up keeps the inner lock: the second would take the lease over from
// nobody, and leave it to nobody.
func TestTwinOfATryThatWasGivenUpReleases(t *testing.T) {
	inWorld(t, func(w *world) {
		w.release(w.givesUpBeside(w.twin("first", time.Minute), w.twin("second", time.Minute), func(*world) zktest.Action {
			return zktest.Action{}
		}))
		time.Sleep(5 * time.Second)
		if w.try(w.lease("other")) == nil {
			w.Errorf(nobodys+": %s", w.record())
		}
	})
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

// givesUpBeside has first try to obtain, and give up when its write is under way, while second waits. It returns second's hold.
func (w *world) givesUpBeside(first, second *lease.NonBlockingLease, fate func(w *world) zktest.Action) *lease.Held {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	got := w.whileTwinWaits(second, func() zktest.Action {
		cancel()
		time.Sleep(time.Millisecond)
		return fate(w)
	})
	if _, err := first.Obtain(ctx); !errors.Is(err, context.Canceled) {
		w.Errorf("got %v", err)
	}
	return <-got
}

// §5 among those of one identifier: a renewal is given up and was not made, and a second process writes the same bytes: the first
// does not take them for its own.
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
				if !next.Valid() {
					w.Error("the newest lost its hold")
				}
				if cause := context.Cause(h.Context()); !errors.Is(cause, lease.ErrLost) {
					w.Errorf("before its release the first hold ended with %v", cause)
				}
				if err := h.Release(w.Context()); err != nil {
					w.Error(err)
				}
				if w.record() == "" {
					w.Errorf(robbed+": the second relies on it until %v", next.End())
				} else {
					w.wantHolder("x")
				}
			})
		})
	}
}

// §5 among those of one identifier: the first one's write has no answer and was not made, and the record that exists has the same
// bytes. It is the second's, which goes on as long as it is.
func TestUnansweredWriteOverATwinsRecord(t *testing.T) {
	inWorld(t, func(w *world) {
		first, second := w.twin("first", time.Minute), w.twin("second", time.Minute)
		w.atFullSecond()
		next := w.obtain(second)
		record := w.record()
		cut := false
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Client != "first" || !isRecord(*r) || cut {
				return zktest.Action{}
			}
			cut = true
			if string(r.Ops[len(r.Ops)-1].Data) != record {
				w.Errorf("it writes %s, and there is %s", r.Ops[len(r.Ops)-1].Data, record)
			}
			return zktest.Action{Cut: true}
		})
		h := w.obtain(first)
		time.Sleep(5 * time.Second)
		if !cut || !h.Valid() {
			w.Errorf("cut: %v, the first holds: %v", cut, h.Valid())
		}
		if next.Valid() {
			w.Error(twoHolders + ": both of one identifier")
		}
	})
}

// §5 among those of one identifier: the session of a renewal ends before its outcome is known, and another of the identifier had
// the inner lock since. The bytes are the same; it can't be told whose they are. The first keeps its hold as long as it was known
// to last, and a release does not remove the record.
func TestRenewalOfUnknownOutcome(t *testing.T) {
	inWorld(t, func(w *world) {
		first, second, other := w.twin("first", time.Minute), w.twin("second", time.Minute), w.lease("other")
		h := w.obtain(first)
		end := h.End()
		time.Sleep(5 * time.Second)
		got := w.whileTwinWaits(second, w.firstExpires)
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
		w.Net.Client("second").BlackHole(zktest.ToClient)
		if h.Valid() {
			if err := h.Release(w.Context()); err == nil {
				w.Error("a release says that the record is gone, or stays with its end")
			}
		}
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
}
