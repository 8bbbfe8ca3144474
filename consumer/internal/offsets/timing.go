package offsets

import (
	"sync/atomic"
	"time"
)

// timing measures how long some messages take, from one mark to the next. It is guarded by the Tracker's mu.
type timing struct {
	observe func(seconds float64) // nil when nothing is measured
	every   time.Duration         // messages that take longer are all measured
	active  atomic.Bool           // a sample is due, or runs
	runs    bool
	began   time.Time // the last mark, or when the message that is measured had come, if that was later; valid while runs is true
}

// TimeMarks has observe called with the time that messages take, in seconds: from the later of the mark before and the moment
// when the message came to a handler that had nothing to do, until its own mark. Of messages that take less than every only those
// are measured that follow a call of Sample. TimeMarks is called before the first mark. observe must not block.
func (t *Tracker) TimeMarks(every time.Duration, observe func(seconds float64)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timing.observe, t.timing.every = observe, every
}

// Sample has the next message measured that can be: the next mark begins a sample, and so does the next message that comes to a
// handler that has nothing to do.
func (t *Tracker) Sample() {
	if t.timing.active.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timing.active.Store(t.timing.observe != nil)
}

// Arrives says that a message is about to come to a handler for which no other one waits. before is the offset after the last
// message that the handler was given. If that is marked, the handler has nothing to do.
func (t *Tracker) Arrives(before int64) {
	if !t.timing.active.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next >= before {
		t.timing.begin(time.Now())
	}
}

func (m *timing) begin(now time.Time) { m.runs, m.began = true, now }

// marked ends the sample that runs, and begins one if one is due.
func (m *timing) marked() {
	if !m.active.Load() {
		return
	}
	now := time.Now()
	if !m.runs {
		m.begin(now)
		return
	}
	took := now.Sub(m.began)
	m.observe(took.Seconds())
	if m.runs = took >= m.every; m.runs {
		m.began = now
	}
	m.active.Store(m.runs)
}
