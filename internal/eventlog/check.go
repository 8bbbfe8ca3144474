package eventlog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Log is what one process wrote. A process that was started again under the same
// member name is another Log.
type Log struct {
	Name   string // of the process, for messages: a file name, say
	Events []Event
	Killed int64 // CLOCK_MONOTONIC ns at which the process was killed from outside; 0 when it ended by itself
}

// Partition names a partition.
type Partition struct {
	Topic string
	ID    int32
}

func (p Partition) String() string { return fmt.Sprintf("%s:%d", p.Topic, p.ID) }

// Expect is what the producer knows.
type Expect struct {
	// End is, per partition, the offset after the last message; every offset
	// from zero must have been handed out. Nil checks no loss.
	End map[Partition]int64
}

// Report is what Check found. Violations holds a sentence for everything that
// breaks the promise; it is empty when all is well.
type Report struct {
	Members       int              // logs read
	Partitions    int              // partitions that were ever owned
	Terms         int              // unbroken ownerships
	Messages      int              // handed out, duplicates included
	Distinct      int              // different messages handed out
	Duplicates    int              // Messages - Distinct
	Lost          int              // messages that no member saw
	Overlaps      int              // pairs of terms that overlap
	LongestUnheld time.Duration    // the longest time for which a partition had no owner between two terms
	Repeated      map[string]int64 // messages read again by the next owner, by the event that ended the term before; "killed" for a process that was
	Violations    []string
}

// OK says whether nothing was violated.
func (r *Report) OK() bool { return len(r.Violations) == 0 }

// String is a summary of a few lines.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d processes, %d partitions, %d terms of ownership, %d messages (%d distinct, %d duplicates, %d lost), %d overlaps, longest without owner %v",
		r.Members, r.Partitions, r.Terms, r.Messages, r.Distinct, r.Duplicates, r.Lost, r.Overlaps, r.LongestUnheld.Round(time.Millisecond))
	for i, v := range r.Violations {
		if i == 20 {
			fmt.Fprintf(&b, "\n  … and %d more", len(r.Violations)-i)
			break
		}
		fmt.Fprintf(&b, "\n  %s", v)
	}
	return b.String()
}

// term is one unbroken ownership of one partition by one process.
type term struct {
	log        string
	p          Partition
	token      int64
	session    string
	start, end int64
	how        string // the event that ended it; "killed" and "cut" (log ends) too
	opened     *int64
	messages   []delivery
	commits    []delivery
}

type delivery struct{ t, offset int64 }

// lastDelivered returns the offset after the last message handed out.
func (tm *term) position() (int64, bool) {
	if n := len(tm.messages); n > 0 {
		return tm.messages[n-1].offset + 1, true
	}
	if tm.opened != nil {
		return *tm.opened, true
	}
	return 0, false
}

// Check reads the logs of all processes of a group and reports.
func Check(logs []Log, expect Expect) *Report {
	c := checker{report: &Report{Members: len(logs), Repeated: map[string]int64{}}, terms: map[Partition][]*term{}, seen: map[Partition]map[int64]int{}}
	for _, l := range logs {
		c.walk(l)
	}
	parts := make([]Partition, 0, len(c.terms))
	for p := range c.terms {
		parts = append(parts, p)
	}
	slices.SortFunc(parts, func(a, b Partition) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.ID, b.ID))
	})
	c.report.Partitions = len(parts)
	for _, p := range parts {
		c.partition(p)
	}
	c.losses(expect)
	return c.report
}

type checker struct {
	report *Report
	terms  map[Partition][]*term
	seen   map[Partition]map[int64]int
	late   []lateCommit
}

type lateCommit struct {
	log string
	p   Partition
	delivery
}

func (c *checker) violate(format string, args ...any) {
	c.report.Violations = append(c.report.Violations, fmt.Sprintf(format, args...))
}

// walk turns one log into terms and checks what concerns this log alone.
func (c *checker) walk(l Log) {
	open := map[Partition]*term{}
	finish := func(tm *term, at int64, how string) {
		tm.end, tm.how = at, how
		delete(open, tm.p)
	}
	last := int64(0)
	for i, e := range l.Events {
		if e.T < last {
			c.violate("%s: line %d: time runs backwards", l.Name, i+1)
		}
		last = e.T
		var p Partition
		if e.Partition != nil {
			p = Partition{e.Topic, *e.Partition}
		}
		tm := open[p]
		switch e.Event {
		case Claimed:
			if tm != nil {
				c.violate("%s: %s claimed while it is owned", l.Name, p)
				continue
			}
			tm = &term{log: l.Name, p: p, token: e.Token, session: e.Session, start: e.T}
			open[p] = tm
			c.terms[p] = append(c.terms[p], tm)
		case Opened:
			if tm == nil {
				c.violate("%s: %s opened without a claim", l.Name, p)
				continue
			}
			tm.opened = e.Offset
		case Message:
			c.message(l.Name, tm, p, e)
		case Committed:
			if e.Offset == nil {
				continue
			}
			d := delivery{e.T, *e.Offset}
			if tm == nil {
				c.late = append(c.late, lateCommit{l.Name, p, d})
				continue
			}
			if pos, ok := tm.position(); ok && d.offset > pos {
				c.violate("%s: %s: committed %d, but only %d was handed out", l.Name, p, d.offset, pos)
			}
			tm.commits = append(tm.commits, d)
		case Released, Lost, Untrusted, Left:
			at := e.T
			if e.Event == Untrusted && e.Since != 0 {
				at = min(at, e.Since)
			}
			if e.Partition != nil {
				if tm != nil {
					finish(tm, at, e.Event)
				}
				continue
			}
			for _, tm := range open {
				for _, m := range tm.messages {
					if m.t > at {
						c.violate("%s: %s: message %d was handed out %v after trust had ended", l.Name, tm.p, m.offset, time.Duration(m.t-at))
					}
				}
				finish(tm, at, e.Event)
			}
		}
	}
	for _, tm := range open {
		if l.Killed != 0 {
			finish(tm, l.Killed, "killed")
		} else {
			finish(tm, last, "cut")
			c.violate("%s: %s: the log ends while it is owned", l.Name, tm.p)
		}
	}
}

func (c *checker) message(log string, tm *term, p Partition, e Event) {
	if e.Offset == nil {
		return
	}
	off := *e.Offset
	if tm == nil {
		c.violate("%s: %s: message %d was handed out by a member that does not own it", log, p, off)
	} else {
		if pos, ok := tm.position(); ok && off != pos {
			c.violate("%s: %s: message %d came where %d was next", log, p, off, pos)
		}
		tm.messages = append(tm.messages, delivery{e.T, off})
	}
	seen := c.seen[p]
	if seen == nil {
		seen = map[int64]int{}
		c.seen[p] = seen
	}
	seen[off]++
	c.report.Messages++
	if seen[off] == 1 {
		c.report.Distinct++
	} else {
		c.report.Duplicates++
	}
}

// partition checks the terms of one partition against each other.
func (c *checker) partition(p Partition) {
	terms := c.terms[p]
	slices.SortStableFunc(terms, func(a, b *term) int { return cmp.Compare(a.start, b.start) })
	c.report.Terms += len(terms)
	committed, delivered := int64(-1), int64(-1)
	for i, tm := range terms {
		if i > 0 {
			c.pair(terms[:i], tm)
		}
		if tm.opened != nil {
			c.start(tm, terms[:i], committed, delivered)
		}
		for _, d := range tm.commits {
			if d.offset < committed {
				c.violate("%s: %s: committed offset went back from %d to %d", tm.log, p, committed, d.offset)
			}
			committed = max(committed, d.offset)
		}
		if pos, ok := tm.position(); ok {
			delivered = max(delivered, pos)
		}
	}
	for _, l := range c.late {
		if l.p != p {
			continue
		}
		for _, tm := range terms {
			if tm.log != l.log && tm.start <= l.t && l.t <= tm.end {
				c.violate("%s: %s: offset %d was committed while %s owned it", l.log, p, l.offset, tm.log)
			}
		}
	}
}

// pair checks a term against those that began before it.
func (c *checker) pair(before []*term, tm *term) {
	prev := before[len(before)-1]
	for _, b := range before {
		if b.log != tm.log && tm.start < b.end {
			c.report.Overlaps++
			c.violate("%s: %s claimed it %v before the term of %s ended (%s)", tm.p, tm.log, time.Duration(b.end-tm.start), b.log, b.how)
		}
	}
	if gap := time.Duration(tm.start - prev.end); gap > c.report.LongestUnheld {
		c.report.LongestUnheld = gap
	}
	regained := prev.log == tm.log && prev.session == tm.session && prev.token == tm.token
	if tm.token <= prev.token && !regained {
		c.violate("%s: token %d of %s does not exceed %d of %s", tm.p, tm.token, tm.log, prev.token, prev.log)
	}
}

// start checks where a term began to read: at what was committed, and after an
// orderly release exactly behind what was handed out before.
func (c *checker) start(tm *term, before []*term, committed, delivered int64) {
	at := *tm.opened
	if committed >= 0 && at < committed {
		c.violate("%s: %s opened at %d, before the committed offset %d", tm.log, tm.p, at, committed)
	}
	if delivered >= 0 && at > delivered {
		c.violate("%s: %s opened at %d, behind %d, the next to be handed out", tm.log, tm.p, at, delivered)
	}
	if len(before) == 0 {
		return
	}
	prev := before[len(before)-1]
	if pos, ok := prev.position(); ok && at < pos {
		c.report.Repeated[prev.how] += pos - at
	}
	if pos, ok := prev.position(); ok && prev.how == Released && at != pos && len(prev.messages) > 0 {
		c.violate("%s: %s opened at %d although %s had handed it over at %d", tm.log, tm.p, at, prev.log, pos)
	}
}

func (c *checker) losses(expect Expect) {
	for p, end := range expect.End {
		missing, first := 0, int64(-1)
		for off := range end {
			if c.seen[p][off] == 0 {
				missing++
				if first < 0 {
					first = off
				}
			}
		}
		if missing > 0 {
			c.report.Lost += missing
			c.violate("%s: %d messages of %d were handed to nobody, the first is %d", p, missing, end, first)
		}
	}
}
