package chaos_test

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/test/members"
)

// firstSign returns when the logs first tell, between two times, that somebody noticed something, or 0: he lost his trust or a
// claim, was asked to hand over, agreed on a new view, or said in his own log that something is wrong with ZooKeeper. Who has
// just come, or was asked to leave, has other reasons for events.
func (f *fleet) firstSign(from, to int64) (first int64) {
	sign := func(t int64) {
		if t > from && t <= to && (first == 0 || t < first) {
			first = t
		}
	}
	for _, m := range f.all {
		for _, t := range m.complaints() {
			sign(t)
		}
		if len(m.events) == 0 || m.events[0].T > from {
			continue
		}
		for _, e := range m.events {
			if m.asked != 0 && e.T > m.asked {
				break
			}
			switch e.Event {
			case eventlog.Snapshot, eventlog.Untrusted, eventlog.Lost, eventlog.Revoking:
				sign(e.T)
			}
		}
	}
	return first
}

// wrongs are what a process says in its log when it notices that something is wrong with ZooKeeper, or with what is there.
var wrongs = []string{
	"connection lost", "connection failed", "failed component=allocator", "proof of life refused", "servers keep refusing the session",
	"session expired", "session given up", "trust lost", "ZooKeeper has lost its data",
}

// complaints lists when a process said in its log that something is wrong.
func (m *member) complaints() (times []int64) {
	m.each(func(at int64, _ string) { times = append(times, at) }, wrongs...)
	return times
}

// said lists what a process said in its log between two times, if it is one of some messages.
func (m *member) said(from, to int64, messages ...string) (lines []string) {
	m.each(func(at int64, line string) {
		if at > from && at <= to {
			lines = append(lines, line)
		}
	}, messages...)
	return lines
}

// each goes through the lines of a process's log with some messages. Lines have milliseconds: they are taken to be later than
// they were, rather than earlier.
func (m *member) each(take func(at int64, line string), messages ...string) {
	offset := time.Now().UnixNano() - members.Monotonic()
	for line := range strings.Lines(m.Log()) {
		line, ok := strings.CutPrefix(line, "time=")
		stamp, rest, _ := strings.Cut(line, " ")
		if !ok || !slices.ContainsFunc(messages, func(w string) bool {
			return strings.Contains(rest, `msg="`+w+`"`) || strings.Contains(rest, "msg="+w+" ")
		}) {
			continue
		}
		if at, err := time.Parse(time.RFC3339, stamp); err == nil {
			take(at.Add(time.Millisecond-1).UnixNano()-offset, rest)
		}
	}
}

// ownedSince says whether everything was owned at a time, by somebody who owned it from then on, and since when.
func (f *fleet) ownedSince(at int64) (since int64, ok bool) {
	for _, id := range f.ids() {
		if f.added[id] > at {
			continue // it was not there yet
		}
		newest := int64(0)
		for _, m := range f.all {
			for _, own := range m.terms[id] {
				if own.claimed <= at && m.end(own) > at {
					newest = max(newest, own.claimed)
				}
			}
		}
		if newest == 0 {
			return 0, false
		}
		since = max(since, newest)
	}
	return since, true
}

// end is when a term ended, by its owner's own log or because he was killed.
func (m *member) end(own *ownTerm) int64 {
	switch {
	case own.ended != 0:
		return own.ended
	case m.Killed != 0:
		return max(m.Killed, m.events[len(m.events)-1].T)
	default:
		return math.MaxInt64
	}
}

// longestOverlap is the longest time for which a partition had two owners.
func (f *fleet) longestOverlap() (longest time.Duration) {
	type held struct {
		by       *member
		from, to int64
	}
	for _, id := range f.ids() {
		var terms []held
		for _, m := range f.all {
			for _, own := range m.terms[id] {
				terms = append(terms, held{m, own.claimed, m.end(own)})
			}
		}
		for i, a := range terms {
			for _, b := range terms[i+1:] {
				if a.by != b.by {
					longest = max(longest, time.Duration(min(a.to, b.to)-max(a.from, b.from)))
				}
			}
		}
	}
	return longest
}
