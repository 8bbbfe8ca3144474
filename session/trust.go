package session

import (
	"slices"
	"time"
)

// instant is a moment on two clocks. The monotonic one stands still while the machine is suspended, the wall clock
// jumps; what has passed is the larger of the two differences.
type instant struct {
	mono time.Duration // since the Session was made
	wall time.Duration // since the epoch
}

func (i instant) add(d time.Duration) instant { return instant{mono: i.mono + d, wall: i.wall + d} }

// reached reports whether i is now or past on either clock.
func (i instant) reached(now instant) bool { return now.mono >= i.mono || now.wall >= i.wall }

// until returns how long it is from now to i on the clock that gets there first.
func (i instant) until(now instant) time.Duration { return min(i.mono-now.mono, i.wall-now.wall) }

func earliest(a, b instant) instant {
	return instant{mono: min(a.mono, b.mono), wall: min(a.wall, b.wall)}
}

// clock tells the time. Tests put their own in.
type clock func() instant

func newClock() clock {
	start := time.Now()
	return func() instant {
		now := time.Now()
		return instant{mono: now.Sub(start), wall: time.Duration(now.UnixNano())}
	}
}

// timeOf turns an instant into a time.Time that has both readings.
func (now clock) timeOf(i instant) time.Time { return time.Now().Add(i.until(now())) }

// trust computes until when a ZooKeeper session may be trusted. T is the negotiated timeout.
//
// An answered proof of life says that the leader held the session alive after the proof was sent, so 2/3 T from then on
// would do, if the answer had also reset the leader's timer. It does not: behind a follower the timer is reset when the
// follower next reports, within half a tick, which is at most T/6 because T is at least three ticks. What is certain
// about the timer is therefore only what an older proof, sent T/6 or more before, tells: 5/6 T from that one on.
//
// A connect request may change the timeout that the leader counts with, down to the smallest that any server grants,
// and we know which only when the reply is read.
type trust struct {
	timeout    time.Duration // T
	minTimeout time.Duration // the smallest that a server may grant
	proofs     []instant     // when answered proofs were sent, oldest first
	connecting []instant     // when the first connect request not yet answered was written; empty or one
}

// end returns the moment at which trust ends; false without any proof.
func (t *trust) end() (instant, bool) {
	if len(t.proofs) == 0 {
		return instant{}, false
	}
	newest := t.proofs[len(t.proofs)-1]
	end := earliest(newest.add(t.timeout*2/3), t.proofs[t.anchor()].add(t.timeout*5/6))
	for _, written := range t.connecting {
		end = earliest(end, written.add(t.minTimeout*2/3))
	}
	return end, true
}

// anchor is the index of the newest proof sent at least T/6 before the newest of all, or of the oldest we know.
func (t *trust) anchor() int {
	last := len(t.proofs) - 1
	for i := last - 1; i > 0; i-- {
		if t.proofs[last].mono-t.proofs[i].mono >= t.timeout/6 {
			return i
		}
	}
	return 0
}

// newest returns when the newest answered proof was sent; false without any.
func (t *trust) newest() (instant, bool) {
	if len(t.proofs) == 0 {
		return instant{}, false
	}
	return t.proofs[len(t.proofs)-1], true
}

// prove notes that a proof sent at that moment was answered. Answers may come in any order.
func (t *trust) prove(sent instant) {
	at := len(t.proofs)
	for at > 0 && t.proofs[at-1].mono > sent.mono {
		at--
	}
	t.proofs = slices.Insert(t.proofs, at, sent)
	t.proofs = slices.Delete(t.proofs, 0, t.anchor())
}

// writing notes that a connect request is about to be written.
func (t *trust) writing(at instant) {
	if len(t.connecting) == 0 {
		t.connecting = append(t.connecting, at)
	}
}

// connected notes that the connect request written at that moment was answered, with this timeout.
func (t *trust) connected(written instant, timeout time.Duration) {
	t.timeout = timeout
	t.connecting = t.connecting[:0]
	t.prove(written)
}
