package session

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kielgo/kiel/internal/sabotage"
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

// jitter is by how much the difference of the clocks may seem to change without anybody having set one: they are read one
// after the other.
const jitter = 50 * time.Millisecond

// steady returns a clock whose wall clock is never set back by more than jitter: but for that, what has passed on it is
// never less than on the monotonic one. Without that a proof from before the wall clock went back by an hour would be
// trusted while the machine is suspended, for as long as an hour: on neither clock would its time have passed. What goes
// unseen is a jump back that is followed by a suspension before anybody asks for the time.
func (now clock) steady() clock {
	type reference struct{ ahead, back time.Duration } // of the wall clock before the other; by how much it was set back
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
		i, r = now(), ref.Load() // again: others may have been faster
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

// timeOf turns an instant into a time.Time that has both readings.
func (now clock) timeOf(i instant) time.Time { return time.Now().Add(i.until(now())) }

// trust computes until when a ZooKeeper session may be trusted. T is its timeout.
//
// A proof of life is a write that the quorum acknowledged: the session was alive after the proof was sent. 2/3 T from
// then on would do, if the answer also meant that the leader's timer was reset. It does not: behind a follower the timer
// is reset when the follower next reports, within half a tick, which is at most T/6 because T is at least three ticks.
// What is certain about the timer is what an older sign of life, sent T/6 or more before the newest, tells: 5/6 T from
// that one on. A connect request is such a sign, for it resets the timer at once. But it is no proof: a leader that has
// lost its quorum and does not know yet answers connect requests as it answers reads, and it would do so again and again
// on a connection that flaps.
//
// A connect request may change the timeout that the leader counts with, down to the smallest that any server grants,
// and we learn which only from the reply. A new leader counts with the timeout of the session's creation. So T is the
// smaller of what was granted first and last.
type trust struct {
	timeout    time.Duration // T
	created    time.Duration // as granted first, 0 before that
	minTimeout time.Duration // the smallest that a server may grant
	signs      []instant     // when answered proofs and connect requests were sent, oldest first
	proofs     []instant     // when the newest answered proof was sent; empty or one
	connecting []instant     // when the first connect request not yet answered was written; empty or one
	off        sabotage.Rules
}

// end returns the moment at which trust ends; false without any proof.
func (t *trust) end() (instant, bool) {
	if len(t.proofs) == 0 {
		return instant{}, false
	}
	end := t.proofs[0].add(t.timeout * 2 / 3)
	if !t.off.Off(sabotage.TouchMargin) {
		end = earliest(end, t.signs[t.anchor()].add(t.timeout*5/6))
	}
	for _, written := range t.connecting {
		if !t.off.Off(sabotage.ConnectMargin) {
			end = earliest(end, written.add(t.minTimeout*2/3))
		}
	}
	return end, true
}

// anchor is the index of the newest sign of life sent at least T/6 before the newest of all, or of the oldest we know.
func (t *trust) anchor() int {
	last := len(t.signs) - 1
	for i := last - 1; i > 0; i-- {
		if t.signs[last].mono-t.signs[i].mono >= t.timeout/6 {
			return i
		}
	}
	return 0
}

// newest returns when the newest answered proof was sent, or without any the newest connect request; false without
// either.
func (t *trust) newest() (instant, bool) {
	switch {
	case len(t.proofs) > 0:
		return t.proofs[0], true
	case len(t.signs) > 0:
		return t.signs[len(t.signs)-1], true
	}
	return instant{}, false
}

// prove notes that a proof sent at that moment was answered. Answers may come in any order.
func (t *trust) prove(sent instant) {
	if len(t.proofs) == 0 || t.proofs[0].mono < sent.mono {
		t.proofs = append(t.proofs[:0], sent)
	}
	t.sign(sent)
}

// writing notes that a connect request is about to be written.
func (t *trust) writing(at instant) {
	if len(t.connecting) == 0 {
		t.connecting = append(t.connecting, at)
	}
}

// connected notes that the connect request written at that moment was answered, with this timeout.
func (t *trust) connected(written instant, timeout time.Duration) {
	t.created = cmp.Or(t.created, timeout)
	t.timeout = min(t.created, timeout)
	t.connecting = t.connecting[:0]
	t.sign(written)
}

func (t *trust) sign(sent instant) {
	at := len(t.signs)
	for at > 0 && t.signs[at-1].mono > sent.mono {
		at--
	}
	t.signs = slices.Insert(t.signs, at, sent)
	t.signs = slices.Delete(t.signs, 0, t.anchor())
}
