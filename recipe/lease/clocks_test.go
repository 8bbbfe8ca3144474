package lease_test

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe/lease"
	"github.com/kielgo/kiel/zktest"
)

// §6: the end is written without its fraction, and read by a clock that is ahead by less than the skew. When Python takes over
// our hold must have ended, though we do not see the new record yet.
func TestTakenOverAtTheWrittenEnd(t *testing.T) {
	for what, now := range map[string]func() time.Time{"own clock": nil, "given clock": time.Now} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, func(w *world) {
				p := w.python("python")
				p.ahead = 1900 * time.Millisecond
				l := w.leaseIn(w.session("ours"), lease.Options{Identifier: "ours", Duration: 10 * time.Second, Now: now})
				time.Sleep(900 * time.Millisecond)
				h := w.obtain(l)
				time.Sleep(time.Until(h.End()) - p.ahead)
				w.Net.Client("ours").BlackHole(zktest.ToClient)
				p.mustObtain(time.Minute)
				if h.Valid() {
					w.Errorf(twoHolders+": Python, and ours until %v", h.End())
				}
				w.Net.Client("ours").Heal()
			})
		})
	}
}

// §6: our wall clock is set back while we hold the lease. That must not lengthen the hold.
func TestWallClockSetBack(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lease("ours")
		var off atomic.Int64
		lease.SetClock(l, func() time.Time { return time.Now().Add(time.Duration(off.Load())) })
		h := w.obtain(l)
		time.Sleep(10 * time.Second)
		off.Store(int64(-30 * time.Second))
		time.Sleep(time.Until(h.End()))
		w.Net.Client("ours").BlackHole(zktest.ToClient)
		w.python("python").mustObtain(time.Minute)
		if h.Valid() {
			w.Error(twoHolders + ": Python, and ours by a clock that was set back")
		}
		w.Net.Client("ours").Heal()
	})
}

// §6: our wall clock is set back within the skew, and a renewal, whose reply is lost, would write an earlier end, without its
// fraction. The hold relies on its own.
func TestRenewalDoesNotShortenTheLease(t *testing.T) {
	inWorld(t, func(w *world) {
		const off = 240 * time.Millisecond
		clocks := map[string]*atomic.Int64{"ours": {}, "other": {}} // how far each is ahead
		in := func(name string) *lease.NonBlockingLease {
			clocks[name].Store(int64(off))
			l := w.leaseIn(w.session(name), lease.Options{Identifier: name, Duration: time.Minute, Skew: 500 * time.Millisecond})
			lease.SetClock(l, func() time.Time { return time.Now().Add(time.Duration(clocks[name].Load())) })
			w.release(w.obtain(l)) // from here on it takes no time
			return l
		}
		ours, other := in("ours"), in("other")
		w.atFullSecond()
		time.Sleep(800 * time.Millisecond)
		h := w.obtain(ours)
		clocks["ours"].Store(int64(-off))
		time.Sleep(300 * time.Millisecond)
		w.loseRecord()
		w.uncertain(h.Renew(w.Context()))
		written, err := lease.Decode([]byte(w.record()))
		w.Must(err)
		time.Sleep(time.Until(written.End) - off)
		w.Net.Client("ours").BlackHole(zktest.ToClient)
		if next := w.try(other); next == nil || h.Valid() {
			w.Errorf(twoHolders+": another from %v on, and ours until %v", written.End, h.End())
		}
		w.Net.Client("ours").Heal()
	})
}

// §6: our clock is half a minute ahead. By it Python's lease is over before its time.
func TestOurClockIsAhead(t *testing.T) {
	inWorld(t, func(w *world) {
		w.python("python").mustObtain(time.Minute)
		time.Sleep(35 * time.Second)
		l := w.lease("ours")
		lease.SetClock(l, func() time.Time { return time.Now().Add(30 * time.Second) })
		h, err := l.Obtain(w.Context())
		switch {
		case err == nil:
			w.Error(twoHolders + ": Python for 25 s more, and ours")
			h.Detach()
		case !errors.Is(err, lease.ErrClockSkew):
			w.Error(err)
		}
	})
}

// §6: a blip of the link must not end a job of more than an hour, nor the end of the session.
func TestHoldOutlivesItsSession(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.session("ours")
		h := w.obtain(w.leaseIn(s, lease.Options{Identifier: "ours", Duration: 70 * time.Minute}))
		id := w.ID(s)
		client := w.Net.Client("ours")
		for _, outage := range []time.Duration{7 * time.Second, 30 * time.Minute} {
			client.BlackHole(zktest.Both)
			time.Sleep(outage)
			client.Heal()
			time.Sleep(time.Minute)
			if !h.Valid() {
				w.Errorf(cancelled+": after %v without a link: %v", outage, context.Cause(h.Context()))
				return
			}
			w.Kill(s)
		}
		if w.ID(s) == id {
			w.Error("the session is the same: nothing was tested")
		}
		w.Check(h.Renew(w.Context()))
		w.release(h)
		w.wantHolder("")
	})
}

// §6: kazoo's default identifier is the host name, and two of a host obtain one lease. So here it has no default.
func TestTwoProcessesOfAHost(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	inWorld(t, func(w *world) {
		w.python(host).mustObtain(time.Minute)
		s := w.session("ours")
		l, err := lease.New(s, path, lease.Options{Duration: time.Minute})
		if err != nil {
			l = w.leaseIn(s, lease.Options{Identifier: host + ", 4711", Duration: time.Minute})
		}
		if h := w.try(l); h != nil {
			w.Errorf(twoHolders+": Python, and ours, both as %s", l.Identifier())
		}
	})
}

// §6: a lease of two seconds, where clocks may be two seconds apart. Nobody can ever rely on it, but each try holds all others
// off.
func TestDurationThatTheSkewEatsUp(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.session("ours")
		opts := lease.Options{Identifier: "ours", Duration: 2 * time.Second, Skew: 2 * time.Second}
		l, err := lease.New(s, path, opts)
		if err != nil {
			opts.Duration = opts.Skew + 2*time.Second // what New asks for
			l = w.leaseIn(s, opts)
		}
		for range 5 {
			h, err := l.Obtain(w.Context())
			switch {
			case err == nil && h.Valid():
				w.release(h)
			case errors.Is(err, lease.ErrExpired):
				w.Errorf(nobodys+": %v", err)
			default:
				w.Errorf("%v, %v", h, err)
			}
			time.Sleep(300 * time.Millisecond)
		}
	})
}
