package session

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// instant is a moment on two clocks. The monotonic clock stands still while the machine is suspended, and the wall clock jumps
// when it is set. The time between two instants is the larger of the two differences.
type instant struct {
	mono time.Duration // since the Session was made
	wall time.Duration // since 1970
}

func (i instant) add(d time.Duration) instant { return instant{mono: i.mono + d, wall: i.wall + d} }

// reached reports whether i is now or past on either clock.
func (i instant) reached(now instant) bool { return now.mono >= i.mono || now.wall >= i.wall }

// until returns how long it is from now to i on the clock that gets there first.
func (i instant) until(now instant) time.Duration { return min(i.mono-now.mono, i.wall-now.wall) }

func earliest(a, b instant) instant {
	return instant{mono: min(a.mono, b.mono), wall: min(a.wall, b.wall)}
}

// clock returns the present moment. Tests replace it.
type clock func() instant

func newClock() clock {
	start := time.Now()
	return func() instant {
		now := time.Now()
		return instant{mono: now.Sub(start), wall: time.Duration(now.UnixNano())}
	}
}

// jitter is by how much the difference of the two clocks may seem to change although nobody has set one, because they are read
// one after the other.
const jitter = 50 * time.Millisecond

// steady returns a clock whose wall clock is never set back by more than jitter: apart from jitter, never less time passes on it
// than on the monotonic clock. Otherwise a proof could stay trusted for an hour while the machine is suspended, if the wall clock
// was set back by an hour after the proof: on neither clock would its time have passed. steady does not notice that the wall
// clock is set back when the machine is suspended before anybody has read the clock.
func (now clock) steady() clock {
	type reference struct {
		ahead time.Duration // of the wall clock, before the monotonic one
		back  time.Duration // by how much the wall clock was set back so far
	}
	var (
		mu  sync.Mutex
		ref atomic.Pointer[reference]
	)
	first := now()
	ref.Store(&reference{ahead: first.wall - first.mono})
	return func() instant {
		i, r := now(), ref.Load()
		if d := i.wall - i.mono - r.ahead; -jitter < d && d < jitter {
			i.wall += r.back
			return i
		}
		mu.Lock()
		defer mu.Unlock()
		i, r = now(), ref.Load() // another caller may have stored a reference meanwhile
		ahead := i.wall - i.mono
		switch d := ahead - r.ahead; {
		case d <= -jitter:
			ref.Store(&reference{ahead: ahead, back: r.back - d})
		case d >= jitter:
			ref.Store(&reference{ahead: ahead, back: r.back})
		}
		i.wall += ref.Load().back
		return i
	}
}

// timeOf returns i as a time.Time that has both readings.
func (now clock) timeOf(i instant) time.Time { return time.Now().Add(i.until(now())) }

// trust computes until when a ZooKeeper session may be trusted. T is the session timeout.
//
// Trust ends 2/3 T after the newest proof was sent, or 5/6 T after the anchor, whichever comes first. A proof of life is a write
// that the quorum acknowledged, so the session was alive after the proof was sent. If the answer also meant that the leader has
// reset its timer of the session, 2/3 T from then on would do alone. It does not: behind a follower the leader resets the timer
// when the follower next reports, within half a tick, which is at most T/6, because T is at least three ticks. The anchor, which
// is a sign of life sent at least T/6 before the newest, has certainly reached the timer: 5/6 T from then on are safe. A connect
// request is a sign of life, because it resets the timer at once. It is no proof: a leader that has lost its quorum, and does not
// know that yet, answers connect requests as it answers reads, and does so again and again on a connection that flaps.
//
// T is the smaller of the timeouts that were granted first and last. A connect request may change the timeout that the leader
// counts with, down to the smallest that any server grants, and only the reply says to which. A new leader counts with the
// timeout that the session was created with.
type trust struct {
	timeout    time.Duration // T
	created    time.Duration // the timeout as granted first, 0 before that
	minTimeout time.Duration // the smallest that a server may grant
	signs      []instant     // when answered proofs and connect requests were sent, oldest first
	proofs     []instant     // when the newest answered proof was sent; empty or one
	connecting []instant     // when the first connect request not yet answered was written; empty or one
}

// end returns the moment at which trust ends; false without any proof.
func (t *trust) end() (instant, bool) {
	if len(t.proofs) == 0 {
		return instant{}, false
	}
	end := t.proofs[0].add(t.timeout * 2 / 3)
	end = earliest(end, t.signs[t.anchor()].add(t.timeout*5/6))
	for _, written := range t.connecting {
		end = earliest(end, written.add(t.minTimeout*2/3))
	}
	return end, true
}

// anchor returns the index of the newest sign of life that was sent at least T/6 before the newest of all; if there is none, of
// the oldest known.
func (t *trust) anchor() int {
	last := len(t.signs) - 1
	for i := last - 1; i > 0; i-- {
		if t.signs[last].mono-t.signs[i].mono >= t.timeout/6 {
			return i
		}
	}
	return 0
}

// newest returns when the newest answered proof was sent; without any proof, when the newest answered connect request was; and
// false without either.
func (t *trust) newest() (instant, bool) {
	switch {
	case len(t.proofs) > 0:
		return t.proofs[0], true
	case len(t.signs) > 0:
		return t.signs[len(t.signs)-1], true
	}
	return instant{}, false
}

// prove records that a proof sent at that moment was answered. Answers may come in any order.
func (t *trust) prove(sent instant) {
	if len(t.proofs) == 0 || t.proofs[0].mono < sent.mono {
		t.proofs = append(t.proofs[:0], sent)
	}
	t.sign(sent)
}

// writing records that a connect request is about to be written.
func (t *trust) writing(at instant) {
	if len(t.connecting) == 0 {
		t.connecting = append(t.connecting, at)
	}
}

// connected records that the connect request written at that moment was answered, with this timeout.
func (t *trust) connected(written instant, timeout time.Duration) {
	t.created = cmp.Or(t.created, timeout)
	t.timeout = min(t.created, timeout)
	t.connecting = t.connecting[:0]
	t.sign(written)
}

// sign records a sign of life, and forgets those before the anchor.
func (t *trust) sign(sent instant) {
	at := len(t.signs)
	for at > 0 && t.signs[at-1].mono > sent.mono {
		at--
	}
	t.signs = slices.Insert(t.signs, at, sent)
	t.signs = slices.Delete(t.signs, 0, t.anchor())
}
