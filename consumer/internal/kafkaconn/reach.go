package kafkaconn

import (
	"sync"
	"sync/atomic"
	"time"
)

// ReachGrace is for how long nothing but failures must be seen before Kafka counts as out of reach. A broker that restarts, or whose
// partitions get another leader, is not.
const ReachGrace = 10 * time.Second

// Reach tells whether Kafka's brokers answer, by what comes of the connections of the Dialers that have it. Any byte from any broker is an
// answer. The zero value works, its methods may be called from any goroutine, and none waits.
type Reach struct {
	fine atomic.Bool // the last thing seen was an answer: the next one need not be noted

	mu       sync.Mutex
	changed  chan struct{} // holds a token when failedAt has changed; nil before Changed
	failedAt time.Time     // of the first failure since the last answer; zero when there was none
	why      error         // the newest failure
	upAt     time.Time     // of the first answer since Kafka was out of reach; zero before the first
}

// answered notes that a broker has sent something.
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

// failed notes that a connection could not be opened, or has failed, and why.
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

// isDown returns whether Kafka is out of reach. r.mu is held.
func (r *Reach) isDown(now time.Time) bool {
	return !r.failedAt.IsZero() && now.Sub(r.failedAt) >= ReachGrace
}

// State returns whether Kafka is in reach, and since when: since the first failure, or the first answer. It is in reach until ReachGrace
// has passed since a failure without an answer, so also before anything was asked; then since is zero.
func (r *Reach) State() (reachable bool, since time.Time) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isDown(now) {
		return false, r.failedAt
	}
	return true, r.upAt
}

// signal tells who waits for Changed. r.mu is held.
func (r *Reach) signal() {
	select {
	case r.changed <- struct{}{}:
	default: // there is a token, or nobody to wait for it
	}
}

// Changed returns a channel that holds a token when Failure may have changed other than by time. It is for one goroutine at a time.
func (r *Reach) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed == nil {
		r.changed = make(chan struct{}, 1)
	}
	return r.changed
}

// Failure returns since when there was no answer but failures, after how long that makes Kafka count as out of reach, 0 when it does, and
// the newest failure. It returns nil when there was an answer since, or no failure yet.
func (r *Reach) Failure() (since time.Time, left time.Duration, why error) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failedAt.IsZero() {
		return time.Time{}, 0, nil
	}
	return r.failedAt, max(ReachGrace-now.Sub(r.failedAt), 0), r.why
}
