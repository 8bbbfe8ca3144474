package allocator

import "time"

// coalescer decides when to act on changes: at once on the first change after a quiet time, later on those that follow. It has no
// timer and reads no clock.
type coalescer struct {
	quiet, max time.Duration // Options.QuietPeriod and Options.MaxDelay

	first, last time.Time // when the first and the last of the waiting changes came; zero if none waits
	calm        time.Time // when the quiet time is over: a change from then on is acted on at once
	urgent      bool      // whether one of the waiting changes must not wait
	awaited     []string  // what a deleted set had, which the members add again in a moment: due waits for it, max at most
}

// change adds a change, and reports whether another one waits already.
func (c *coalescer) change(now time.Time) bool {
	joined := !c.first.IsZero()
	if !joined {
		c.first = now
	}
	c.last = now
	return joined
}

// due returns when to act on the waiting changes, and whether there are any.
func (c *coalescer) due() (time.Time, bool) {
	switch {
	case c.first.IsZero():
		return time.Time{}, false
	case c.urgent || !c.first.Before(c.calm):
		return c.first, true
	}
	quiet, most := c.last.Add(c.quiet), c.first.Add(c.max)
	if len(c.awaited) > 0 || most.Before(quiet) {
		return most, true
	}
	return quiet, true
}

// deleted records that a set with items was deleted. If it lacked some of an earlier set's, those are still awaited.
func (c *coalescer) deleted(items []string) {
	if len(c.awaited) == 0 {
		c.awaited = items
	}
}

// holds records what the set holds now.
func (c *coalescer) holds(items []string) {
	if hasAll(items, c.awaited) {
		c.awaited = nil
	}
}

// acted records that the waiting changes are acted on now.
func (c *coalescer) acted(now time.Time) {
	*c = coalescer{quiet: c.quiet, max: c.max, calm: now.Add(c.quiet)}
}

// disturb makes a change that comes now wait, even after calm.
func (c *coalescer) disturb(now time.Time) { c.calm = now.Add(c.quiet) }
