package eventlog

import (
	"math"
	"time"
)

// Clock gives moments of this process in the time of its event log.
type Clock struct {
	anchor time.Time
	at     int64 // the anchor, in the log's time
}

// NewClock makes a Clock for a log whose time read returns, in nanoseconds. Both clocks are read one after the other, and the
// process may be stopped in between: of many tries the quickest counts.
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

// Of returns t in the log's time. A moment is always the same there, whenever it is asked for.
func (c Clock) Of(t time.Time) int64 { return c.at + t.Sub(c.anchor).Nanoseconds() }
