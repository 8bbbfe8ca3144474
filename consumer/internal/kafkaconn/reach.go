package kafkaconn

import (
	"sync"
	"sync/atomic"
	"time"
)

// ReachGrace is how long there must be failures and no answer until Kafka counts as out of reach. It is longer than the restart
// of a broker, or the move of a leader.
const ReachGrace = 10 * time.Second

// Reach shows whether Kafka's brokers answer. Dialers report the answers and failures of their connections to it. Any byte from
// any broker is an answer. The zero value works, its methods may be called from any goroutine, and none blocks.
type Reach struct {
	fine atomic.Bool // the last report was an answer, so the next answer changes nothing

	mu       sync.Mutex
	changed  chan struct{} // holds a token when failedAt has changed; nil before Changed
	failedAt time.Time     // the first failure since the last answer; zero when there was none
	why      error         // the newest failure
	upAt     time.Time     // the first answer since Kafka was out of reach; zero before the first
}

// answered reports that a broker has sent a byte.
func (r *Reach) answered() {
	if r == nil || r.fine.Load() {
		return
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.upAt.IsZero() || r.isDown(now) {
		r.upAt = now
	}
	if !r.failedAt.IsZero() {
		r.signal()
	}
	r.failedAt, r.why = time.Time{}, nil
	r.fine.Store(true)
}

// failed reports why a connection could not be opened, or has failed.
func (r *Reach) failed(why error) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.why = why
	if r.failedAt.IsZero() {
		r.failedAt = time.Now()
		r.signal()
	}
	r.fine.Store(false)
}

// isDown reports whether Kafka is out of reach. r.mu is held.
func (r *Reach) isDown(now time.Time) bool {
	return !r.failedAt.IsZero() && now.Sub(r.failedAt) >= ReachGrace
}

// State reports whether Kafka is in reach, and since when. Kafka is out of reach when ReachGrace has passed since a failure
// without an answer; since is then that failure. Otherwise since is the first answer, or zero before the first.
func (r *Reach) State() (reachable bool, since time.Time) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isDown(now) {
		return false, r.failedAt
	}
	return true, r.upAt
}

// signal puts a token into the channel of Changed. r.mu is held.
func (r *Reach) signal() {
	select {
	case r.changed <- struct{}{}:
	default: // the channel has a token, or Changed was never called
	}
}

// Changed returns a channel that holds a token when Failure may have changed, other than by time. It is for one goroutine at a
// time.
func (r *Reach) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed == nil {
		r.changed = make(chan struct{}, 1)
	}
	return r.changed
}

// Failure returns the first failure since the last answer, how long it is until Kafka counts as out of reach (0 when it does),
// and the newest failure. The error is nil when there was no failure since the last answer.
func (r *Reach) Failure() (since time.Time, left time.Duration, why error) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failedAt.IsZero() {
		return time.Time{}, 0, nil
	}
	return r.failedAt, max(ReachGrace-now.Sub(r.failedAt), 0), r.why
}
