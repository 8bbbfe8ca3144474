package eventlog

import (
	"time"
)

// walker is the state of the checker while it reads one log.
type walker struct {
	*checker
	log  string                // the log's name
	open map[Partition]*tenure // tenures that have not ended
	gone map[Partition]*tenure // tenures that ended as lost or untrusted, if the partition was not claimed again
	last map[Partition]*tenure // the last tenures that have ended
}

// walk makes tenures from one log, and checks what concerns this log alone.
func (c *checker) walk(l Log) {
	w := &walker{
		checker: c, log: l.Name, open: map[Partition]*tenure{}, gone: map[Partition]*tenure{}, last: map[Partition]*tenure{},
	}
	last := int64(0)
	for i, e := range l.Events {
		if e.T < last {
			c.violate("%s: line %d: time runs backwards", l.Name, i+1)
		}
		last = e.T
		w.event(e)
	}
	for _, tm := range w.open {
		if l.Killed != 0 {
			w.finish(tm, max(l.Killed, last), "killed")
		} else {
			w.finish(tm, last, "cut")
			c.violate("%s: %s: the log ends while it is owned", l.Name, tm.p)
		}
	}
}

// event reads one line.
func (w *walker) event(e Event) {
	var p Partition
	if e.Partition != nil {
		p = Partition{e.Topic, *e.Partition}
	}
	tm := w.open[p]
	switch e.Event {
	case Claimed:
		if tm != nil {
			w.violate("%s: %s claimed while it is owned", w.log, p)
			return
		}
		tm = &tenure{log: w.log, p: p, token: e.Token, session: e.Session, start: e.T, hasDone: w.hasDone}
		w.open[p] = tm
		delete(w.gone, p)
		w.tenures[p] = append(w.tenures[p], tm)
	case Opened:
		if tm == nil {
			w.violate("%s: %s opened without a claim", w.log, p)
			return
		}
		if tm.opened != nil {
			tm = w.reopen(tm, e.T)
		}
		tm.opened = e.Offset
	case Message:
		w.message(tm, p, e)
	case Done:
		w.finished(tm, p, e)
	case Committed:
		w.commit(tm, p, e)
	case Releasing, Lost, Untrusted, Left:
		at := e.T
		if e.Event == Untrusted && e.Since != 0 {
			at = min(at, e.Since)
		}
		if e.Partition == nil {
			for _, tm := range w.open {
				w.finish(tm, at, e.Event)
			}
			if e.Event == Left {
				clear(w.gone) // all handlers have returned
			}
		} else if tm != nil {
			w.finish(tm, at, e.Event)
		}
	}
}

// reopen ends a tenure and begins another one under the same claim, because the partition is opened again. Messages that were
// handed out and not processed may be handed out again.
func (w *walker) reopen(tm *tenure, at int64) *tenure {
	w.finish(tm, at, closed)
	next := &tenure{log: tm.log, p: tm.p, token: tm.token, session: tm.session, start: at, hasDone: tm.hasDone}
	w.open[tm.p] = next
	w.tenures[tm.p] = append(w.tenures[tm.p], next)
	return next
}

// finish ends a tenure at a time that may be before the last lines: a process that was frozen writes "untrusted" late.
func (w *walker) finish(tm *tenure, at int64, how string) {
	tm.end, tm.how = at, how
	delete(w.open, tm.p)
	w.last[tm.p] = tm
	if how == Untrusted || how == Lost {
		w.gone[tm.p] = tm
	}
	n := len(tm.messages)
	for n > 0 && tm.messages[n-1].t > at {
		n--
	}
	for _, m := range tm.messages[n:] {
		w.late(tm, m)
	}
	tm.messages = tm.messages[:n]
	for _, d := range tm.commits {
		if d.t > at {
			w.violate("%s: %s: the commit of %d was sent %v after the end (%s)", w.log, tm.p, d.offset, time.Duration(d.t-at), how)
		}
	}
}

// late checks a message that the log has after the end of the tenure. One is allowed after a loss: the process may be stopped
// between handing it out and logging it.
func (w *walker) late(tm *tenure, m delivery) {
	tm.late++
	if tm.late == 1 && (tm.how == Untrusted || tm.how == Lost) {
		w.report.Late++
		return
	}
	w.violate("%s: %s: message %d was handed out %v after the end (%s)", w.log, tm.p, m.offset, time.Duration(m.t-tm.end), tm.how)
}

// next checks that a message is the one that follows those handed out before.
func (w *walker) next(tm *tenure, m delivery) {
	if pos, ok := tm.position(); ok && m.offset != pos {
		w.violate("%s: %s: message %d came where %d was next", w.log, tm.p, m.offset, pos)
	}
}

// commit checks that a commit was sent by the owner, and of processed messages alone.
func (w *walker) commit(tm *tenure, p Partition, e Event) {
	if e.Offset == nil {
		return
	}
	d := delivery{e.T, *e.Offset}
	if e.Since != 0 {
		d.t = min(d.t, e.Since) // the time of sending counts, not that of the answer
	}
	if tm == nil {
		if gone := w.gone[p]; gone == nil || d.t > gone.end {
			w.violate("%s: %s: offset %d was committed by a member that does not own it", w.log, p, d.offset)
		}
		return
	}
	if last := w.last[p]; d.t < tm.start {
		if last == nil || d.t > last.end {
			w.violate("%s: %s: the commit of %d was sent %v before it was claimed", w.log, p, d.offset, time.Duration(tm.start-d.t))
			return
		}
		tm = last
	}
	if pos, ok := tm.processed(); ok && d.offset > pos {
		w.violate("%s: %s: committed %d, but only messages before %d were processed", w.log, p, d.offset, pos)
	}
	tm.commits = append(tm.commits, d)
}

// finished records that a handler has processed a message. The log may have "done" after the end of the tenure, and before the
// "message".
func (w *walker) finished(tm *tenure, p Partition, e Event) {
	if e.Offset == nil {
		return
	}
	if w.done[p] == nil {
		w.done[p] = map[int64]bool{}
	}
	w.done[p][*e.Offset] = true
	w.process(p, *e.Offset)
	if tm != nil && tm.opened != nil {
		tm.done = max(tm.done, *e.Offset+1)
	}
}

// message records that a message was handed out.
func (w *walker) message(tm *tenure, p Partition, e Event) {
	if e.Offset == nil {
		return
	}
	d := delivery{e.T, *e.Offset}
	if tm == nil {
		tm = w.gone[p]
		if tm == nil {
			w.violate("%s: %s: message %d was handed out by a member that does not own it", w.log, p, d.offset)
		} else {
			w.next(tm, d)
			w.late(tm, d)
		}
	} else {
		w.next(tm, d)
		tm.messages = append(tm.messages, d)
	}
	seen := w.seen[p]
	if seen == nil {
		seen = map[int64]int{}
		w.seen[p] = seen
	}
	seen[d.offset]++
	w.report.Messages++
	if seen[d.offset] == 1 {
		w.report.Distinct++
	}
	if !w.hasDone {
		w.process(p, d.offset)
	}
}
