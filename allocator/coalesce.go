package allocator

import "time"

// coalescer says when to act on changes: on the first after calm at once, on
// those that follow by two timers. It holds no timer and asks no clock.
type coalescer struct {
	quiet, max time.Duration

	first, last time.Time // of the changes not acted on; zero when there is none
	calm        time.Time // a change from here on finds calm
	urgent      bool      // one of them must not wait
}

// change notes a change, and says whether it joined one that waits already.
func (c *coalescer) change(now time.Time) bool {
	joined := !c.first.IsZero()
	if !joined {
		c.first = now
	}
	c.last = now
	return joined
}

// due says when to act on the changes that wait, if any do.
func (c *coalescer) due() (time.Time, bool) {
	switch {
	case c.first.IsZero():
		return time.Time{}, false
	case c.urgent || !c.first.Before(c.calm):
		return c.first, true
	}
	quiet, most := c.last.Add(c.quiet), c.first.Add(c.max)
	if most.Before(quiet) {
		return most, true
	}
	return quiet, true
}

// acted notes that the changes are acted on now.
func (c *coalescer) acted(now time.Time) {
	*c = coalescer{quiet: c.quiet, max: c.max, calm: now.Add(c.quiet)}
}

// disturb makes a change that comes now wait, even after calm.
func (c *coalescer) disturb(now time.Time) { c.calm = now.Add(c.quiet) }
