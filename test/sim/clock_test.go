package sim_test

import (
	"sync"
	"time"
)

// memberClock is the clock of a process. It may run at another rate than the world's, stand still, and jump. It is the session's
// clock alone: timers go by the world's.
type memberClock struct {
	mu         sync.Mutex
	at         time.Time // when the rates were set last, and what the clock showed then
	mono, wall time.Duration
	monoRate   float64
	wallRate   float64
}

func newMemberClock() *memberClock {
	now := time.Now()
	return &memberClock{at: now, wall: time.Duration(now.UnixNano()), monoRate: 1, wallRate: 1}
}

// now is a clocks.Clock.
func (c *memberClock) now() (mono, wall time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := float64(time.Since(c.at))
	return c.mono + time.Duration(passed*c.monoRate), c.wall + time.Duration(passed*c.wallRate)
}

// when is the moment of which this clock says that it was then, now: it can't have said so before it was last set.
func (c *memberClock) when(said time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	ago := time.Duration(float64(time.Since(said)) / max(c.monoRate, c.wallRate))
	if at := time.Now().Add(-ago); at.After(c.at) {
		return at
	}
	return c.at
}

// setAt is when it was last set.
func (c *memberClock) setAt() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// set sets the rates, and has the wall clock jump.
func (c *memberClock) set(monoRate, wallRate float64, jump time.Duration) {
	mono, wall := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.mono, c.wall, c.monoRate, c.wallRate = time.Now(), mono, wall+jump, monoRate, wallRate
}
