package eventlog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Log is the event log of one process. A process that is started again under the same member name has another Log.
type Log struct {
	Name   string // names the process in violations; mostly a file name
	Events []Event
	Killed int64 // CLOCK_MONOTONIC ns at which the process was killed; 0 if it ended by itself
}

// Partition names a partition.
type Partition struct {
	Topic string
	ID    int32
}

func (p Partition) String() string { return fmt.Sprintf("%s:%d", p.Topic, p.ID) }

// Expect is what the producer, and whoever makes the faults, knows.
type Expect struct {
	// End is the offset after the last message of each partition. Each offset from zero must have been handed out, and done. With
	// nil, no loss is reported.
	End map[Partition]int64
	// Exempt lists times in which an overlap is no violation: a third party has removed a claim, a member or a session. Then the
	// partition is free at once, and its owner notices later.
	Exempt []Exempt
	// Wiped lists when ZooKeeper lost all data. A member that was trusted then may still be trusted while its partitions are
	// claimed again, and tokens start anew.
	Wiped []Span
}

// Exempt is a time in which a partition may have two owners.
type Exempt struct {
	Partition Partition
	Span
}

// Span is a time, in CLOCK_MONOTONIC ns.
type Span struct{ From, To int64 }

// holds reports whether the time from from to to lies within s.
func (s Span) holds(from, to int64) bool { return s.From <= from && to <= s.To }

// Report is the result of Check. Violations has a sentence for each fact that breaks the promise; it is empty if none does.
type Report struct {
	Members       int              // logs
	Events        int              // lines in the logs
	Partitions    int              // partitions that had an owner
	Tenures       int              // unbroken ownerships
	Messages      int              // messages that were handed out, duplicates included
	Distinct      int              // different messages that were handed out
	Duplicates    int              // messages that were done again; that were handed out again, if the logs have no "done"
	Lost          int              // messages that were not handed out, or not done
	Late          int              // messages that a log has after the end of trust or of the claim, and that were handed out right before it
	Overlaps      int              // pairs of tenures that overlap
	Exempted      int              // pairs of tenures that overlap where it is held against nobody
	LongestUnheld time.Duration    // the longest time for which a partition had no owner between two tenures
	Repeated      map[string]int64 // messages read again by the next owner, by the event that ended the tenure before; "killed" for a process that was
	Violations    []string
}

// OK reports whether there is no violation.
func (r *Report) OK() bool { return len(r.Violations) == 0 }

// String returns a summary of a few lines.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d processes, %d partitions, %d tenures, %d messages (%d distinct, %d duplicates, %d lost, %d late), %d overlaps, longest without owner %v",
		r.Members, r.Partitions, r.Tenures, r.Messages, r.Distinct, r.Duplicates, r.Lost, r.Late, r.Overlaps, r.LongestUnheld.Round(time.Millisecond))
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

// closed is the end of a tenure whose partition is opened again under the same claim.
const closed = "closed"

// tenure is one unbroken ownership of a partition by a process; if the partition is opened again meanwhile, each opening is a
// tenure.
type tenure struct {
	log        string
	p          Partition
	token      int64
	session    string
	start, end int64
	how        string     // the event that ended it, or closed, "killed", or "cut" if the log ended before
	opened     *int64     // the offset at which reading started; nil before "opened"
	messages   []delivery // the messages handed out, in their order
	late       int        // how many messages were handed out after the end
	commits    []delivery // the commits sent
	hasDone    bool       // whether the logs have "done"
	done       int64      // the offset after the last message that was done
}

// delivery is a message that was handed out, or an offset whose commit was sent, and when.
type delivery struct{ t, offset int64 }

// position returns the offset after the last message handed out. It returns false before "opened".
func (tm *tenure) position() (int64, bool) {
	if n := len(tm.messages); n > 0 {
		return tm.messages[n-1].offset + 1, true
	}
	if tm.opened != nil {
		return *tm.opened, true
	}
	return 0, false
}

// processed returns the offset up to which the owner may commit.
func (tm *tenure) processed() (int64, bool) {
	pos, ok := tm.position()
	if ok && tm.hasDone && tm.opened != nil {
		pos = max(*tm.opened, tm.done)
	}
	return pos, ok
}

// Check checks the logs of all processes of a group.
func Check(logs []Log, expect Expect) *Report {
	c := checker{
		report: &Report{Members: len(logs), Repeated: map[string]int64{}}, expect: expect,
		tenures: map[Partition][]*tenure{}, seen: map[Partition]map[int64]int{}, done: map[Partition]map[int64]bool{},
		processed: map[Partition]map[int64]bool{},
	}
	for _, l := range logs {
		c.report.Events += len(l.Events)
		c.hasDone = c.hasDone || slices.ContainsFunc(l.Events, func(e Event) bool { return e.Event == Done })
	}
	for _, l := range logs {
		c.walk(l)
	}
	parts := make([]Partition, 0, len(c.tenures))
	for p := range c.tenures {
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
	c.undelivered()
	return c.report
}

// checker is the state of one Check.
type checker struct {
	report  *Report
	expect  Expect
	hasDone bool                         // whether some log has "done"
	tenures map[Partition][]*tenure      // in the order of the logs; partition sorts them by time
	seen    map[Partition]map[int64]int  // how often each message was handed out
	done    map[Partition]map[int64]bool // the messages that were done

	processed map[Partition]map[int64]bool // the messages that were done; that were handed out, if the logs have no "done"
}

// exempt reports whether a partition may have two owners at a time.
func (c *checker) exempt(p Partition, from, to int64) bool {
	return slices.ContainsFunc(c.expect.Exempt, func(e Exempt) bool { return e.Partition == p && e.holds(from, to) }) ||
		slices.ContainsFunc(c.expect.Wiped, func(s Span) bool { return s.holds(from, to) })
}

// wiped reports whether ZooKeeper may have lost its data between the beginnings of two tenures.
func (c *checker) wiped(from, to int64) bool {
	return slices.ContainsFunc(c.expect.Wiped, func(s Span) bool { return from <= s.To && to >= s.From })
}

// violate adds a violation to the report.
func (c *checker) violate(format string, args ...any) {
	c.report.Violations = append(c.report.Violations, fmt.Sprintf(format, args...))
}

// process records that a message was processed, and counts it if it was processed before.
func (c *checker) process(p Partition, offset int64) {
	if c.processed[p] == nil {
		c.processed[p] = map[int64]bool{}
	}
	if c.processed[p][offset] {
		c.report.Duplicates++
	}
	c.processed[p][offset] = true
}

// partition checks the tenures of one partition against each other.
func (c *checker) partition(p Partition) {
	tenures := c.tenures[p]
	slices.SortStableFunc(tenures, func(a, b *tenure) int { // in virtual time tenures may begin and end within an instant
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end), cmp.Compare(a.token, b.token))
	})
	delivered := int64(-1)
	var commits []delivery
	for i, tm := range tenures {
		if tm.how != closed {
			c.report.Tenures++
		}
		if i > 0 {
			c.pair(tenures[:i], tm)
		}
		if tm.opened != nil {
			c.start(tm, tenures[:i], commits, delivered)
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

// pair checks a tenure against the tenures that began before it.
func (c *checker) pair(before []*tenure, tm *tenure) {
	prev := before[len(before)-1]
	for _, b := range before {
		if b.log == tm.log || tm.start >= b.end {
			continue
		}
		if c.exempt(tm.p, tm.start, b.end) {
			c.report.Exempted++
		} else {
			c.report.Overlaps++
			c.violate("%s: %s claimed it %v before the tenure of %s ended (%s)", tm.p, tm.log, time.Duration(b.end-tm.start), b.log, b.how)
		}
	}
	if gap := time.Duration(tm.start - prev.end); gap > c.report.LongestUnheld {
		c.report.LongestUnheld = gap
	}
	regained := prev.log == tm.log && prev.session == tm.session && prev.token == tm.token
	// A third party removed the claim before its owner logged it.
	removed := tm.start < prev.end && c.exempt(tm.p, tm.start, prev.end)
	if tm.token <= prev.token && !regained && !removed && !c.wiped(prev.start, tm.start) {
		c.violate("%s: token %d of %s does not exceed %d of %s", tm.p, tm.token, tm.log, prev.token, prev.log)
	}
}

// start checks where a tenure began to read: at the committed offset or behind it, and after an orderly release exactly behind
// the last message that was processed. A message that was handed out and not done may have been in a channel; it is read again.
func (c *checker) start(tm *tenure, before []*tenure, commits []delivery, delivered int64) {
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
		c.violate("%s: %s opened at %d, behind %d, the next offset to hand out", tm.log, tm.p, at, delivered)
	}
	if len(before) == 0 {
		return
	}
	prev := before[len(before)-1]
	pos, ok := prev.processed()
	if ok && at < pos {
		c.report.Repeated[prev.how] += pos - at
	}
	if ok && prev.hasDone && prev.how == Releasing && at != pos && len(prev.messages) > 0 {
		c.violate("%s: %s opened at %d, but %s released it when all before %d was processed", tm.log, tm.p, at, prev.log, pos)
	}
}

// losses reports messages that were not handed out, or handed out and not done.
func (c *checker) losses() {
	for p, end := range c.expect.End {
		c.missing(p, end, "never handed out", func(off int64) bool { return c.seen[p][off] > 0 })
		if len(c.done) > 0 {
			c.missing(p, end, "handed out and never done", func(off int64) bool { return c.seen[p][off] == 0 || c.done[p][off] })
		}
	}
}

// undelivered reports messages that were done though they were never handed out.
func (c *checker) undelivered() {
	for p, done := range c.done {
		for off := range done {
			if c.seen[p][off] == 0 {
				c.violate("%s: message %d was done and never handed out", p, off)
			}
		}
	}
}

// missing reports the messages before end for which has returns false.
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
		c.violate("%s: %d messages of %d were %s, the first is %d", p, missing, end, what, first)
	}
}
