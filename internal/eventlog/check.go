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
	// from zero must have been handed out, and done. Nil checks no loss.
	End map[Partition]int64
	// Exempt lists overlaps that are held against nobody: a third party has
	// removed somebody's claim, member or session. The partition is free at once
	// then, and its owner learns it later.
	Exempt []Exempt
	// Wiped lists when ZooKeeper lost all it knew. Whoever was trusted then may
	// still be while the partitions are claimed again, and tokens start anew.
	Wiped []Span
}

// Exempt is a time in which a partition may have two owners.
type Exempt struct {
	Partition Partition
	Span
}

// Span is a time, in CLOCK_MONOTONIC ns.
type Span struct{ From, To int64 }

// holds says whether a time lies within s.
func (s Span) holds(from, to int64) bool { return s.From <= from && to <= s.To }

// Report is what Check found. Violations holds a sentence for everything that
// breaks the promise; it is empty when all is well.
type Report struct {
	Members       int              // logs read
	Events        int              // in them
	Partitions    int              // partitions that were ever owned
	Terms         int              // unbroken ownerships
	Messages      int              // handed out, duplicates included
	Distinct      int              // different messages handed out
	Duplicates    int              // messages that were processed again; handed out again, where the logs do not have what is done
	Lost          int              // messages that no member was handed, or none has done
	Late          int              // messages in the log after the end of trust or a claim that were handed out in the moment before
	Overlaps      int              // pairs of terms that overlap
	Exempted      int              // pairs of terms that overlap where it is held against nobody
	LongestUnheld time.Duration    // the longest time for which a partition had no owner between two terms
	Repeated      map[string]int64 // messages read again by the next owner, by the event that ended the term before; "killed" for a process that was
	Violations    []string
}

// OK says whether nothing was violated.
func (r *Report) OK() bool { return len(r.Violations) == 0 }

// String is a summary of a few lines.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d processes, %d partitions, %d terms of ownership, %d messages (%d distinct, %d duplicates, %d lost, %d late), %d overlaps, longest without owner %v",
		r.Members, r.Partitions, r.Terms, r.Messages, r.Distinct, r.Duplicates, r.Lost, r.Late, r.Overlaps, r.LongestUnheld.Round(time.Millisecond))
	if r.Exempted > 0 {
		fmt.Fprintf(&b, " (and %d exempt)", r.Exempted)
	}
	for i, v := range r.Violations {
		if i == 20 {
			fmt.Fprintf(&b, "\n  … and %d more", len(r.Violations)-i)
			break
		}
		fmt.Fprintf(&b, "\n  %s", v)
	}
	return b.String()
}

// closed is how a term ends after which the partition is opened again under the same claim.
const closed = "closed"

// term is one unbroken ownership of one partition by one process, or that part of it until the partition is opened again.
type term struct {
	log        string
	p          Partition
	token      int64
	session    string
	start, end int64
	how        string // the event that ended it; "killed", "cut" (log ends) and closed too
	opened     *int64
	messages   []delivery
	late       int // messages handed out after the end
	commits    []delivery
	tells      bool  // the logs have what is done
	done       int64 // the offset after the last message that was done
}

// delivery is a message that was handed out, or an offset whose commit was sent.
type delivery struct{ t, offset int64 }

// position returns the offset after the last message handed out.
func (tm *term) position() (int64, bool) {
	if n := len(tm.messages); n > 0 {
		return tm.messages[n-1].offset + 1, true
	}
	if tm.opened != nil {
		return *tm.opened, true
	}
	return 0, false
}

// processed returns the offset up to which it may commit.
func (tm *term) processed() (int64, bool) {
	pos, ok := tm.position()
	if ok && tm.tells && tm.opened != nil {
		pos = max(*tm.opened, tm.done)
	}
	return pos, ok
}

// Check reads the logs of all processes of a group and reports.
func Check(logs []Log, expect Expect) *Report {
	c := checker{
		report: &Report{Members: len(logs), Repeated: map[string]int64{}}, expect: expect,
		terms: map[Partition][]*term{}, seen: map[Partition]map[int64]int{}, done: map[Partition]map[int64]bool{},
		processed: map[Partition]map[int64]bool{},
	}
	for _, l := range logs {
		c.report.Events += len(l.Events)
		c.tells = c.tells || slices.ContainsFunc(l.Events, func(e Event) bool { return e.Event == Done })
	}
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
	c.losses()
	c.strangers()
	return c.report
}

type checker struct {
	report *Report
	expect Expect
	tells  bool // the logs have what is done
	terms  map[Partition][]*term
	seen   map[Partition]map[int64]int
	done   map[Partition]map[int64]bool

	processed map[Partition]map[int64]bool // done; handed out, where the logs do not have that
}

// exempt says whether a partition may have two owners at a time.
func (c *checker) exempt(p Partition, from, to int64) bool {
	return slices.ContainsFunc(c.expect.Exempt, func(e Exempt) bool { return e.Partition == p && e.holds(from, to) }) ||
		slices.ContainsFunc(c.expect.Wiped, func(s Span) bool { return s.holds(from, to) })
}

// wiped says whether ZooKeeper lost what it knew between the beginnings of two terms, or may have.
func (c *checker) wiped(from, to int64) bool {
	return slices.ContainsFunc(c.expect.Wiped, func(s Span) bool { return from <= s.To && to >= s.From })
}

func (c *checker) violate(format string, args ...any) {
	c.report.Violations = append(c.report.Violations, fmt.Sprintf(format, args...))
}

// process counts what was processed before.
func (c *checker) process(p Partition, offset int64) {
	if c.processed[p] == nil {
		c.processed[p] = map[int64]bool{}
	}
	if c.processed[p][offset] {
		c.report.Duplicates++
	}
	c.processed[p][offset] = true
}

// partition checks the terms of one partition against each other.
func (c *checker) partition(p Partition) {
	terms := c.terms[p]
	slices.SortStableFunc(terms, func(a, b *term) int { // in virtual time terms may begin and end within an instant
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end), cmp.Compare(a.token, b.token))
	})
	delivered := int64(-1)
	var commits []delivery
	for i, tm := range terms {
		if tm.how != closed {
			c.report.Terms++
		}
		if i > 0 {
			c.pair(terms[:i], tm)
		}
		if tm.opened != nil {
			c.start(tm, terms[:i], commits, delivered)
		}
		commits = append(commits, tm.commits...)
		if pos, ok := tm.position(); ok {
			delivered = max(delivered, pos)
		}
	}
	slices.SortStableFunc(commits, func(a, b delivery) int { return cmp.Compare(a.t, b.t) })
	committed := int64(-1)
	for _, d := range commits {
		if d.offset < committed && !c.exempt(p, d.t, d.t) {
			c.violate("%s: committed offset went back from %d to %d", p, committed, d.offset)
		}
		committed = max(committed, d.offset)
	}
}

// pair checks a term against those that began before it.
func (c *checker) pair(before []*term, tm *term) {
	prev := before[len(before)-1]
	for _, b := range before {
		if b.log == tm.log || tm.start >= b.end {
			continue
		}
		if c.exempt(tm.p, tm.start, b.end) {
			c.report.Exempted++
		} else {
			c.report.Overlaps++
			c.violate("%s: %s claimed it %v before the term of %s ended (%s)", tm.p, tm.log, time.Duration(b.end-tm.start), b.log, b.how)
		}
	}
	if gap := time.Duration(tm.start - prev.end); gap > c.report.LongestUnheld {
		c.report.LongestUnheld = gap
	}
	regained := prev.log == tm.log && prev.session == tm.session && prev.token == tm.token
	// A third party has removed the claim before its owner wrote that it had it.
	removed := tm.start < prev.end && c.exempt(tm.p, tm.start, prev.end)
	if tm.token <= prev.token && !regained && !removed && !c.wiped(prev.start, tm.start) {
		c.violate("%s: token %d of %s does not exceed %d of %s", tm.p, tm.token, tm.log, prev.token, prev.log)
	}
}

// start checks where a term began to read: at what was committed, and after an
// orderly release exactly behind what was processed before. What was only handed out
// may have stood in a channel, and is read again.
func (c *checker) start(tm *term, before []*term, commits []delivery, delivered int64) {
	at, committed := *tm.opened, int64(-1)
	for _, d := range commits {
		if d.t <= tm.start {
			committed = max(committed, d.offset)
		}
	}
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
	pos, ok := prev.processed()
	if ok && at < pos {
		c.report.Repeated[prev.how] += pos - at
	}
	if ok && prev.tells && prev.how == Released && at != pos && len(prev.messages) > 0 {
		c.violate("%s: %s opened at %d although %s had handed it over at %d", tm.log, tm.p, at, prev.log, pos)
	}
}

func (c *checker) losses() {
	for p, end := range c.expect.End {
		c.missing(p, end, "handed to", func(off int64) bool { return c.seen[p][off] > 0 })
		if len(c.done) > 0 {
			c.missing(p, end, "handed out, and done by", func(off int64) bool { return c.seen[p][off] == 0 || c.done[p][off] })
		}
	}
}

// strangers looks for what was done though nobody was handed it.
func (c *checker) strangers() {
	for p, done := range c.done {
		for off := range done {
			if c.seen[p][off] == 0 {
				c.violate("%s: message %d was done, but handed to nobody", p, off)
			}
		}
	}
}

// missing counts offsets of which has is false.
func (c *checker) missing(p Partition, end int64, what string, has func(offset int64) bool) {
	missing, first := 0, int64(-1)
	for off := range end {
		if !has(off) {
			missing++
			if first < 0 {
				first = off
			}
		}
	}
	if missing > 0 {
		c.report.Lost += missing
		c.violate("%s: %d messages of %d were %s nobody, the first is %d", p, missing, end, what, first)
	}
}
