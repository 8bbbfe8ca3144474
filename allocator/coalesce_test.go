package allocator

import (
	"slices"
	"testing"
	"time"
)

// TestCoalescer feeds changes at given times (in ms) and acts when it is due.
func TestCoalescer(t *testing.T) {
	every := func(step, until int) (ms []int) {
		for at := 0; at <= until; at += step {
			ms = append(ms, at)
		}
		return ms
	}
	for name, test := range map[string]struct {
		changes []int
		urgent  int // the index of a change that must not wait, from 1
		lacking int // the index of a change after which more is about to come, until the next one
		want    []int
	}{
		"one change":                  {changes: []int{0}, want: []int{0}},
		"the second waits for quiet":  {changes: []int{0, 50}, want: []int{0, 250}},
		"the third prolongs it":       {changes: []int{0, 50, 200}, want: []int{0, 400}},
		"calm again":                  {changes: []int{0, 200, 1000}, want: []int{0, 200, 1000}},
		"just not calm":               {changes: []int{0, 199}, want: []int{0, 399}},
		"acting late is not calm":     {changes: []int{0, 50, 260}, want: []int{0, 250, 460}},
		"a stream is bounded":         {changes: every(100, 2500), want: []int{0, 1100, 2200, 2700}},
		"an urgent one does not wait": {changes: []int{0, 50, 90}, urgent: 3, want: []int{0, 90}},
		"what lacks is waited for":    {changes: []int{0, 50, 600}, lacking: 2, want: []int{0, 800}},
		"but not for ever":            {changes: []int{0, 50, 1900}, lacking: 2, want: []int{0, 1050, 1900}},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			c := coalescer{quiet: 200 * time.Millisecond, max: time.Second}
			var got []int
			next := 0
			for ms := range 10_000 {
				now := start.Add(time.Duration(ms) * time.Millisecond)
				for next < len(test.changes) && test.changes[next] == ms {
					c.change(now)
					next++
					c.urgent = c.urgent || next == test.urgent
					c.awaited = nil
					if next == test.lacking {
						c.awaited = []string{"t:0"}
					}
				}
				if due, ok := c.due(); ok && !due.After(now) {
					c.acted(now)
					got = append(got, ms)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("acted at %v, want %v", got, test.want)
			}
		})
	}
}

func TestCoalescerCountsWhatItMerges(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := coalescer{quiet: time.Second, max: time.Minute}
	if c.change(now) || !c.change(now) {
		t.Error("the first change merged, or the second did not")
	}
	c.acted(now)
	if _, waiting := c.due(); waiting || c.change(now) {
		t.Error("what was acted on waits still")
	}
}

// A set that is deleted again before it is whole must not make a member forget what the first one held.
func TestDeletedTwice(t *testing.T) {
	var c coalescer
	c.deleted([]string{"t:0", "t:1"})
	c.holds([]string{"t:0"})
	c.deleted([]string{"t:0"})
	c.holds([]string{"t:0"})
	if len(c.awaited) != 2 {
		t.Errorf("awaited is %q", c.awaited)
	}
	if c.holds([]string{"t:0", "t:1", "t:2"}); c.awaited != nil {
		t.Errorf("awaited is %q, though the set is whole", c.awaited)
	}
}
