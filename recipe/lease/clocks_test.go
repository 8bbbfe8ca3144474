package lease_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/sabotage"
	"github.com/kielgo/kiel/internal/sabotage/attack"
	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/zktest"
)

// §6: the end is written without its fraction, and read by a clock that is ahead by less than the skew. When Python takes over
// our hold must have ended, though we do not see the new record yet.
func TestTakenOverAtTheWrittenEnd(t *testing.T) {
	for what, now := range map[string]func() time.Time{"own clock": nil, "given clock": time.Now} {
		t.Run(what, func(t *testing.T) {
			attack.Run(t, twoHolders, func(a *attack.Attack) {
				w := attacked(a)
				p := w.python("python")
				p.ahead = 1900 * time.Millisecond
				l := w.leaseIn(w.session("ours"), lease.Options{Identifier: "ours", Duration: 10 * time.Second, Now: now})
				time.Sleep(900 * time.Millisecond)
				h := w.obtainIn(a.Context(), l)
				time.Sleep(time.Until(h.End()) - p.ahead)
				w.nw.Client("ours").BlackHole(zktest.ToClient)
				if !p.obtains(time.Minute) {
					a.Fatal("Python does not get the lease")
				}
				if h.Valid() {
					a.Harmed(twoHolders, "Python, and ours until %v", h.End())
				}
				w.nw.Client("ours").Heal()
			}, sabotage.EndAsWritten)
		})
	}
}

// §6: our wall clock is set back while we hold the lease. That must not lengthen the hold.
func TestWallClockSetBack(t *testing.T) {
	attack.Run(t, twoHolders, func(a *attack.Attack) {
		w := attacked(a)
		l := w.lease("ours")
		var off atomic.Int64
		lease.SetClock(l, func() time.Time { return time.Now().Add(time.Duration(off.Load())) })
		h := w.obtainIn(a.Context(), l)
		time.Sleep(10 * time.Second)
		off.Store(int64(-30 * time.Second))
		time.Sleep(time.Until(h.End()))
		w.nw.Client("ours").BlackHole(zktest.ToClient)
		if !w.python("python").obtains(time.Minute) {
			a.Fatal("Python does not get the lease")
		}
		if h.Valid() {
			a.Harmed(twoHolders, "Python, and ours by a clock that was set back")
		}
		w.nw.Client("ours").Heal()
	}, sabotage.EndMonotonic)
}

// §6: our clock is half a minute ahead. By it Python's lease is over before its time.
func TestOurClockIsAhead(t *testing.T) {
	attack.Run(t, twoHolders, func(a *attack.Attack) {
		w := attacked(a)
		if !w.python("python").obtains(time.Minute) {
			a.Fatal("Python does not get the lease")
		}
		time.Sleep(35 * time.Second)
		l := w.lease("ours")
		lease.SetClock(l, func() time.Time { return time.Now().Add(30 * time.Second) })
		h, err := l.Obtain(a.Context())
		switch {
		case err == nil:
			a.Harmed(twoHolders, "Python for 25 s more, and ours")
			h.Detach()
		case !errors.Is(err, lease.ErrClockSkew):
			a.Error(err)
		}
	}, sabotage.ClocksCompared)
}

// §6: a blip of the link must not end a job of more than an hour, nor the end of the session.
func TestHoldOutlivesItsSession(t *testing.T) {
	attack.Run(t, cancelled, func(a *attack.Attack) {
		w := attacked(a)
		s := w.session("ours")
		h := w.obtainIn(a.Context(), w.leaseIn(s, lease.Options{Identifier: "ours", Duration: 70 * time.Minute}))
		id := w.id(s)
		client := w.nw.Client("ours")
		for _, outage := range []time.Duration{7 * time.Second, 30 * time.Minute} {
			client.BlackHole(zktest.Both)
			time.Sleep(outage)
			client.Heal()
			time.Sleep(time.Minute)
			if !h.Valid() {
				a.Harmed(cancelled, "after %v without a link: %v", outage, context.Cause(h.Context()))
				return
			}
			w.srv.KillSession(w.id(s))
		}
		if w.id(s) == id {
			a.Error("the session is the same: nothing was tested")
		}
		if err := h.Renew(a.Context()); err != nil {
			a.Error(err)
		}
		w.release(h)
		w.wantHolder("")
	}, sabotage.LeaseOutlivesTrust)
}

// §6: kazoo's default identifier is the host name, and two of a host obtain one lease. So here it has no default: with that
// one the execution does its harm.
func TestTwoProcessesOfAHost(t *testing.T) {
	for identifier, two := range map[string]bool{"host": true, "host, 4711": false} {
		inWorld(t, func(w *world) {
			if !w.python("host").obtains(time.Minute) {
				w.Fatal("Python does not get the lease")
			}
			s := w.session("ours")
			if _, err := lease.New(s, path, lease.Options{Duration: time.Minute}); err == nil {
				w.Error("a lease without an identifier")
			}
			if h := w.try(w.leaseIn(s, lease.Options{Identifier: identifier, Duration: time.Minute})); (h != nil) != two {
				w.Errorf("Python has it as host, and ours obtains it as %s: %v", identifier, h != nil)
			}
		})
	}
}
