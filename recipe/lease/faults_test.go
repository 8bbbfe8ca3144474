package lease_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/recipe/lock"
	"github.com/kielgo/kiel/zktest"
)

// pythonTakes does what kazoo does in the end: it deletes the record and makes its own. The version is 0 again. It may be called
// from any goroutine.
func (w *world) pythonTakes(holder string) {
	w.Helper()
	w.Check(w.Srv.Delete(node))
	r := lease.Record{Version: 1, Holder: holder, End: time.Now().Add(time.Minute)}
	w.Check(w.Srv.Create(node, lease.Encode(r)))
}

// The same while the release is under way: between its look and its delete.
func TestReleaseLosesTheRace(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.obtain(w.lease("a"))
		raced := false
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if isRecord(*r) && !raced {
				raced = true
				w.pythonTakes("python")
			}
			return zktest.Action{}
		})
		w.release(h)
		if !raced {
			w.Error("nothing was tested")
		}
		w.wantHolder("python")
	})
}

// The record changes, or our contender is removed, just before the record is written: another's is not replaced, and the try goes
// on where the lease is free.
func TestObtainLosesTheRace(t *testing.T) {
	record := func(after time.Duration) string {
		return string(lease.Encode(lease.Record{Version: 1, Holder: "python", End: time.Now().Add(after)}))
	}
	for what, tt := range map[string]struct {
		stands  bool // the record of a lease that is over
		happens func(w *world)
		holder  string
	}{
		"made":      {false, func(w *world) { w.Write(node, record(time.Minute)) }, "python"},
		"taken":     {true, func(w *world) { w.Write(node, record(time.Minute)) }, "python"},
		"removed":   {true, func(w *world) { w.Check(w.Srv.Delete(node)) }, "ours"},
		"contender": {false, func(w *world) { w.Check(w.Srv.Delete(path + "/" + w.Srv.Children(path)[0])) }, "ours"},
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, func(w *world) {
				if tt.stands {
					w.Write(node, record(-time.Minute))
				}
				w.Steps(recipetest.Before(isRecord, func() { tt.happens(w) }))
				l := w.lease("ours")
				if h := w.try(l); (h != nil) != (tt.holder == "ours") || l.Held() != (h != nil) {
					w.Errorf("got %+v, held %v", h, l.Held())
				}
				w.wantHolder(tt.holder)
			})
		})
	}
}

// The context ends just when a try has lost the race: the error wraps the cause of the context.
func TestContextEndsBesideALoss(t *testing.T) {
	inWorld(t, func(w *world) {
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(w.Context())
		defer cancel(nil)
		w.Steps(
			recipetest.Before(isRecord, func() { w.Write(node, "somebody's") }),
			recipetest.Before(is(zktest.OpDelete), func() { cancel(why) }), // of the contender
		)
		if _, err := w.lease("a").Obtain(ctx); !errors.Is(err, why) {
			w.Errorf("got %v", err)
		}
	})
}

// Python replaces the record between a renewal's look and its write: that is a loss, and the record stays.
func TestRenewLosesTheRace(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.obtain(w.lease("ours"))
		w.Steps(recipetest.Before(isRecord, func() { w.pythonTakes("python") }))
		if err := h.Renew(w.Context()); !errors.Is(err, lease.ErrLost) || h.Valid() {
			w.Errorf("renew: %v, valid: %v", err, h.Valid())
		}
		w.wantHolder("python")
	})
}

// Python was stalled between its requests while its session expired, and replaces our record without having the inner lock: our
// hold ends at once.
func TestRecordReplacedWhileHolding(t *testing.T) {
	for what, replace := range map[string]func(w *world){
		"replaced":   func(w *world) { w.pythonTakes("python") },
		"deleted":    func(w *world) { w.Must(w.Srv.Delete(node)) },
		"set":        func(w *world) { w.Must(w.Srv.Set(node, []byte("x"))) },
		"same bytes": func(w *world) { w.Must(w.Srv.Set(node, []byte(w.record()))) },
	} {
		inWorld(t, func(w *world) {
			h := w.obtain(w.lease("a"))
			replace(w)
			left := w.record()
			start := time.Now()
			w.ended(h, lease.ErrLost)
			if d := time.Since(start); d > time.Second {
				w.Errorf("%s: noticed after %v", what, d)
			}
			if err := h.Renew(w.Context()); !errors.Is(err, lease.ErrLost) && !errors.Is(err, lease.ErrBadRecord) {
				w.Errorf("%s: renew: %v", what, err)
			}
			_ = h.Release(w.Context())
			if r := w.record(); r != left {
				w.Errorf("%s: record %q, before the release %q", what, r, left)
			}
		})
	}
}

// The same in an outage: noticed when there is a connection again, in the session after.
func TestRecordReplacedInAnOutage(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.session("a")
		h := w.obtain(w.leaseIn(s, lease.Options{Identifier: "a", Duration: time.Hour}))
		client := w.Net.Client("a")
		client.BlackHole(zktest.Both)
		time.Sleep(time.Minute)
		w.pythonTakes("python")
		client.Heal()
		start := time.Now()
		w.ended(h, lease.ErrLost)
		if d := time.Since(start); d > 15*time.Second {
			w.Errorf("noticed after %v", d)
		}
	})
}

// Two of one identifier, as kazoo's default makes them, obtain both; the first is told.
func TestTwoOfOneIdentifier(t *testing.T) {
	inWorld(t, func(w *world) {
		one := w.leaseIn(w.session("1"), lease.Options{Identifier: "host", Duration: time.Minute})
		two := w.leaseIn(w.session("2"), lease.Options{Identifier: "host", Duration: time.Minute})
		h := w.obtain(one)
		time.Sleep(time.Second)
		next := w.obtain(two)
		w.ended(h, lease.ErrLost)
		if !next.Valid() || one.Held() || !two.Held() {
			w.Error("the second does not have it alone")
		}
		w.release(h)
		if !next.Valid() {
			w.Error("the release of the first ended the second's hold")
		}
		w.wantHolder("host")
	})
}

// A clock that is off by more than half the skew is refused, with nothing written; one within is not.
func TestClockSkew(t *testing.T) {
	for off, ok := range map[time.Duration]bool{
		0: true, 900 * time.Millisecond: true, -900 * time.Millisecond: true,
		1100 * time.Millisecond: false, -1100 * time.Millisecond: false, time.Hour: false, -time.Hour: false,
	} {
		inWorld(t, func(w *world) {
			l := w.lease("a")
			lease.SetClock(l, func() time.Time { return time.Now().Add(off) })
			h, err := l.Obtain(w.Context())
			if ok != (err == nil) || err != nil && !errors.Is(err, lease.ErrClockSkew) || ok != (w.record() != "") {
				w.Errorf("off by %v: %v, record %q", off, err, w.record())
			}
			if h != nil {
				w.release(h)
			}
			w.wantHolder("")
		})
	}
}

// An answer that takes too long proves nothing about the clocks.
func TestClockCannotBeCompared(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lease("a")
		if _, _, err := l.Holder(w.Context()); err != nil { // there is a connection
			w.Fatal(err)
		}
		client := w.Net.Client("a")
		client.Delay(1100 * time.Millisecond) // in each direction
		if _, err := l.Obtain(w.Context()); !errors.Is(err, lease.ErrClockSkew) {
			w.Errorf("got %v", err)
		}
		client.Heal()
		w.obtain(l)
	})
}

// The clock goes wrong while the lease is held: it can't be renewed.
func TestRenewComparesClocks(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lease("a")
		var off atomic.Int64
		lease.SetClock(l, func() time.Time { return time.Now().Add(time.Duration(off.Load())) })
		h := w.obtain(l)
		record := w.record()
		off.Store(int64(-10 * time.Second))
		if err := h.Renew(w.Context()); !errors.Is(err, lease.ErrClockSkew) || w.record() != record {
			w.Errorf("got %v, record %s", err, w.record())
		}
		// The clock that was set back does not lengthen the hold.
		start := time.Now()
		w.ended(h, lease.ErrExpired)
		if d := time.Since(start); d > 58*time.Second {
			w.Errorf("the hold went on for %v", d)
		}
	})
}

// The clock is set forward: the hold ends with the next look, and Valid looks at once.
func TestClockSetForward(t *testing.T) {
	inWorld(t, func(w *world) {
		clock := newMockClock()
		l := w.leaseIn(w.session("a"), lease.Options{Identifier: "a", Duration: time.Minute, Now: clock.Now})
		h := w.obtain(l)
		time.Sleep(10100 * time.Millisecond)
		clock.forward(59)
		if h.Valid() || l.Held() {
			w.Error("it is still held")
		}
		start := time.Now()
		w.ended(h, lease.ErrExpired)
		if d := time.Since(start); d > time.Second {
			w.Errorf("after %v", d)
		}
	})
}

// The replies of what obtains, renews and releases are lost, but for those of a write of the record, of which unknown_test.go
// tells.
func TestLostReplies(t *testing.T) {
	for name, match := range map[string]func(zktest.Request) bool{
		"create": is(zktest.OpCreate), "set": is(zktest.OpSetData), "multi": isRecord, "delete": is(zktest.OpDelete), "read": is(zktest.OpGetData),
	} {
		for losses := 1; losses <= 2; losses++ {
			inWorld(t, func(w *world) {
				l := w.lease("a")
				lose := func() { w.Srv.LoseReply(losses, match) }
				if name != "multi" {
					lose()
				}
				h := w.obtain(l)
				w.wantHolder("a")
				time.Sleep(10 * time.Second)
				if name != "multi" {
					lose()
				}
				if err := h.Renew(w.Context()); err != nil || !h.Valid() {
					w.Errorf("renew: %v", err)
				}
				if d := time.Until(h.End()); d < 55*time.Second {
					w.Errorf("renewed until %v from now", d)
				}
				time.Sleep(10 * time.Second)
				if !h.Valid() {
					w.Errorf("lost: %v", context.Cause(h.Context()))
				}
				lose()
				w.release(h)
				w.wantHolder("")
			})
		}
	}
}

// Released with the link down: the record goes when there is a link, or its time comes.
func TestReleaseWithoutALink(t *testing.T) {
	for _, outage := range []time.Duration{5 * time.Second, 2 * time.Minute} {
		inWorld(t, func(w *world) {
			l := w.lease("a")
			h := w.obtain(l)
			client := w.Unplug("a")
			ctx := w.Within(time.Second)
			if err := h.Release(ctx); !errors.Is(err, context.DeadlineExceeded) {
				w.Errorf("got %v", err)
			}
			w.ended(h, lease.ErrReleased)
			time.Sleep(outage)
			if err := h.Release(ctx); outage > time.Minute && err != nil {
				w.Errorf("after its time: %v", err)
			}
			client.Heal()
			w.Check(h.Release(w.Context()))
			if outage < time.Minute {
				w.wantHolder("")
			}
			w.obtain(l)
		})
	}
}

// Without a session every call ends with its context.
func TestCallsEndWithTheirContext(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Net.Refuse()
		l := w.lease("a")
		recipetest.EndWithTheirContext(w, path, map[string]func(context.Context) error{
			"Obtain": func(ctx context.Context) error { _, err := l.Obtain(ctx); return err },
			"Holder": func(ctx context.Context) error { _, _, err := l.Holder(ctx); return err },
		})
	})
}

// The directory is deleted with everything in it.
func TestDirectoryDeleted(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lease("a")
		h := w.obtain(l)
		w.Must(w.Srv.Delete("/app"))
		w.ended(h, lease.ErrLost)
		w.release(h)
		w.release(w.obtain(l))
	})
}

// While somebody else has the inner lock, a hold that is being renewed goes on.
func TestRenewWaitsForTheInnerLock(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.obtain(w.lease("a"))
		inner, err := lock.New(w.session("b"), path, lock.Options{})
		w.Must(err)
		held, err := inner.Acquire(w.Context())
		w.Must(err)
		if err := h.Renew(w.Within(5 * time.Second)); !errors.Is(err, context.DeadlineExceeded) || !h.Valid() {
			w.Errorf("got %v", err)
		}
		w.Check(held.Release(w.Context()))
		w.Check(h.Renew(w.Context()))
	})
}
