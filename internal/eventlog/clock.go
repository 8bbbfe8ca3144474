package eventlog

import (
	"math"
	"time"
)

// Clock converts times of this process to the time of its event log.
type Clock struct {
	anchor time.Time
	at     int64 // the anchor, in the log's time
}

// NewClock returns a Clock for a log whose time read returns, in nanoseconds. NewClock reads both clocks one after the other. The
// process may be stopped in between, so the quickest of many readings counts.
func NewClock(read func() int64) Clock {
	const tries = 100
	var c Clock
	best := int64(math.MaxInt64)
	for range tries {
		before, now := read(), time.Now()
		if took := read() - before; took < best {
			best, c = took, Clock{anchor: now, at: before + took/2}
		}
	}
	return c
}

// Of returns t in the log's time. It always returns the same for the same t.
func (c Clock) Of(t time.Time) int64 { return c.at + t.Sub(c.anchor).Nanoseconds() }
