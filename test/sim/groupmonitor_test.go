package sim_test

import (
	"time"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/ownership"
)

// groupTerm is what is known of a term of a Group.
type groupTerm struct {
	how    ownership.EventKind // that ended it
	ended  time.Time           // for sure no later than this, with over
	clock  bool                // a clock ended it: there was no trust at any time of that instant
	before *term               // of the same claim
	handed time.Time           // when the last message was taken
	doubt  time.Time           // when the first was for which there was no trust: it must have ended just then
	told   time.Time           // when it was told to finish
	sent   time.Time           // when trust was asked for before the newest commit
	done   int64               // all messages of this term below were processed
	least  int64               // what was committed when it was claimed, or has been in this term
}

// observeGroup is the group's Observer.
func (p *process) observeGroup(e consumer.Event) {
	switch e.Kind {
	case consumer.Opened, consumer.Message, consumer.Committed:
		p.w.mon.observeGroup(p, e)
	default:
		p.w.mon.observe(p, e)
	}
}

// observeGroup hears of a group's messages and offsets.
func (m *monitor) observeGroup(p *process, e consumer.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.isDead() {
		return
	}
	state := m.member(p)
	m.cov.hit("group: " + string(e.Kind))
	i := m.plan.index(e.Topic, e.Partition)
	t := m.parts[i].terms[p]
	if t == nil || t.token != e.Token {
		t = state.ended[claimID{part: i, token: e.Token}]
	}
	switch {
	case t == nil:
		m.violate("S7", "%s: %s of p%d with token %#x, which it never had", p.id, e.Kind, i, e.Token)
	case state.left:
		m.violate("S7", "%s: %s of p%d after left", p.id, e.Kind, i)
	case e.Kind == consumer.Opened:
		m.groupOpened(t, e.Offset)
	case e.Kind == consumer.Message:
		m.groupMessage(t, e.Offset)
	case e.Kind == consumer.Committed:
		m.groupCommitted(t, e)
	}
}

// groupOpened notes where reading begins.
func (m *monitor) groupOpened(t *term, off int64) {
	part := m.parts[t.part]
	m.note("%s opens p%d at %d (processed %d, acknowledged %d)", t.p.id, t.part, off, part.processed, part.acked)
	t.opened, t.position = true, off
	if off > part.processed {
		m.violate("S5", "%s opens p%d at %d, processed is only what is before %d", t.p.id, t.part, off, part.processed)
	}
	// A commit of a claim that was lost may arrive after the position was read.
	if off < t.least {
		m.violate("S6", "%s opens p%d at %d, but %d was committed", t.p.id, t.part, off, t.least)
	}
	if n := int(part.processed - off); n > 0 {
		m.dups += n
		m.cov.hit("group: messages processed again")
	}
	if t.trusted() {
		m.rivals(t, "opens")
	}
}

// groupMessage notes that a handler has taken a message.
func (m *monitor) groupMessage(t *term, off int64) {
	if off != t.position {
		m.violate("S5", "%s is handed %d of p%d, expected %d", t.p.id, off, t.part, t.position)
	}
	t.position = off + 1
	if t.revoking && time.Now().After(t.told) { // within an instant there is no order
		m.violate("S7", "%s is handed %d of p%d %v after it was told to finish", t.p.id, off, t.part, time.Since(t.told))
	}
	t.handed = time.Now()
	switch {
	case t.over && t.how == ownership.Releasing:
		m.violate("S7", "%s is handed %d of p%d after it was released", t.p.id, off, t.part)
	case t.over:
		m.late(t)
	case t.trusted():
		m.rivals(t, "is handed a message of")
	case t.doubt.IsZero():
		t.doubt = t.handed
	}
}

// late judges the last message of a term that has ended. Within an instant there is no order of what one hears, so the message
// may have been taken before; but not if a clock has ended the term, which shows the same time all the while.
func (m *monitor) late(t *term) {
	if d := t.handed.Sub(t.ended); d > 0 || d == 0 && t.clock {
		m.violate("S4", "%s is handed a message of p%d %v after the end (%v)", t.p.id, t.part, d, t.how)
	}
}

// groupCommitted judges a commit by when it was sent: that was with trust, and of what was processed.
func (m *monitor) groupCommitted(t *term, e consumer.Event) {
	for t.before != nil && e.Since.Before(t.began) { // it was sent in the term before, of the same claim
		t = t.before
	}
	part := m.parts[t.part]
	switch {
	case e.Since.IsZero() || e.Since.After(time.Now()):
		m.violate("S4", "%s commits %d of p%d, sent at %v", t.p.id, e.Offset, t.part, e.Since)
	case e.Since.Before(t.began):
		m.violate("S4", "%s commits %d of p%d, sent %v before it was claimed", t.p.id, e.Offset, t.part, t.began.Sub(e.Since))
	case t.over && e.Since.After(t.ended):
		m.violate("S4", "%s commits %d of p%d, sent %v after the end (%v)",
			t.p.id, e.Offset, t.part, e.Since.Sub(t.ended), t.how)
	case t.over && t.how == ownership.Releasing:
		m.violate("S4", "%s released p%d before its commit of %d was answered", t.p.id, t.part, e.Offset)
	case t.over:
		m.cov.hit("group: commit sent before the end, answered after it")
	default:
		t.least = max(t.least, e.Offset)
	}
	if t.sent.Before(e.Since) {
		t.sent = e.Since
	}
	if t.opened && e.Offset > max(t.position, t.done) {
		m.violate("S4", "%s commits %d of p%d, was handed what is before %d", t.p.id, e.Offset, t.part, t.position)
	}
	if e.Offset > part.processed {
		m.violate("S5", "%s commits %d of p%d, processed is only what is before %d", t.p.id, e.Offset, t.part, part.processed)
	}
	if !m.excuses.covers(t) { // after a third party's deed another may own the partition by now, and is behind
		part.acked = max(part.acked, e.Offset)
	}
}

// groupEnd notes the end of a term, and judges by it what was told before.
func (m *monitor) groupEnd(t *term, how ownership.EventKind, at time.Time) {
	t.how, t.ended = how, at
	state, id := m.member(t.p), claimID{part: t.part, token: t.token}
	t.before = state.ended[id]
	state.ended[id] = t
	if t.sent.After(at) {
		m.violate("S4", "%s committed of p%d, sent %v after the end (%v)", t.p.id, t.part, t.sent.Sub(at), how)
	}
	if !t.handed.IsZero() {
		m.late(t)
	}
	if !t.doubt.IsZero() && t.doubt.Before(at) {
		m.violate("S4", "%s was handed a message of p%d without trust, %v before the end (%v)",
			t.p.id, t.part, at.Sub(t.doubt), how)
	}
}

// handled notes that a group's handler has processed a message. Only a handler that works on several messages at a time may do so
// before it has processed those before it.
func (m *monitor) handled(t *term, off int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.p.isDead() {
		return
	}
	t.done = max(t.done, off+1)
	part := m.parts[t.part]
	if off > part.processed {
		if t.p.api() != plainDone {
			m.violate("S5", "%s processes %d of p%d, but only what is before %d was processed",
				t.p.id, off, t.part, part.processed)
			return
		}
		m.cov.hit("group: processed before an older message")
	}
	part.saw(off)
	for part.hasSeen(part.processed) {
		part.processed++
	}
}

// groupSnapshot hears of a snapshot of a Group's allocator.
func (m *monitor) groupSnapshot(s *allocator.Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cov.hit("group: mapping compared")
	m.mapping(s)
}

// between notes Setup and Cleanup of a Group: handlers run in between.
func (m *monitor) between(p *process, begins bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.isDead() {
		return
	}
	state := m.member(p)
	for part, n := range state.running {
		if n > 0 {
			m.violate("S7", "%s: Setup or Cleanup while the handler of p%d runs", p.id, part)
		}
	}
	if state.setup == begins {
		m.violate("S7", "%s: Setup or Cleanup twice", p.id)
	}
	state.setup = begins
}
