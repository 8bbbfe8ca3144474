package page

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kielgo/kiel/consumer/inspect"
)

// state is what is kept from look to look, while somebody watches.
type state struct {
	kept    *inspect.Report // the last one in which ZooKeeper answered; nil before the first
	letters letters
	history history
}

func newState() *state { return &state{letters: letters{}} }

// seen is what one snapshot shows. It never changes.
type seen struct {
	report  *inspect.Report // nil if err is not
	err     error           // why the group could not be looked at
	kept    *inspect.Report // whose members and partitions are shown: report, or the last one in which ZooKeeper answered; may be nil
	at      time.Time
	letters map[string]int
	changes []change
}

// next takes in what a look has found.
func (s *state) next(report *inspect.Report, err error) *seen {
	now := time.Now().UTC()
	if report != nil {
		now = takenAt(report)
		if report.ZooKeeper.State == inspect.OK {
			s.kept = report
			s.letters.assign(report, now)
			s.history.add(report.Changes)
		}
	}
	shown := &seen{report: report, err: err, kept: s.kept, at: now, letters: map[string]int{}, changes: s.history.newest()}
	for name, l := range s.letters {
		shown.letters[name] = l.number
	}
	return shown
}

// takenAt returns when the first source was asked: a look at a large group takes seconds.
func takenAt(r *inspect.Report) time.Time {
	age := 0.0
	for _, s := range []inspect.Source{r.ZooKeeper, r.Kafka} {
		if s.State == inspect.OK {
			age = max(age, s.Age)
		}
	}
	return r.At.Add(-time.Duration(age * float64(time.Second)))
}

// letters have a number for each member and owner, from which its letter and its colour come. A name keeps it while it is seen.
type letters map[string]*letter

type letter struct {
	number int
	last   time.Time // when the name was last seen
}

// keepLetter is how long the letter of a member that is gone is given to no other.
const keepLetter = time.Hour

func (l letters) assign(r *inspect.Report, now time.Time) {
	used := map[int]bool{}
	for name, one := range l {
		if now.Sub(one.last) > keepLetter {
			delete(l, name)
			continue
		}
		used[one.number] = true
	}
	free := 0
	see := func(name string) {
		if name == "" {
			return
		}
		if l[name] == nil {
			for used[free] {
				free++
			}
			used[free] = true
			l[name] = &letter{number: free}
		}
		l[name].last = now
	}
	for _, m := range r.Members {
		see(m.Name)
	}
	for _, p := range r.Partitions {
		see(p.Owner)
	}
}

// letterOf returns A to Z, then AA, AB, and so on.
func letterOf(number int) string {
	const n = 'Z' - 'A' + 1
	if number < n {
		return string(rune('A' + number))
	}
	return letterOf(number/n-1) + letterOf(number%n)
}

// history are the last changes.
type history struct{ rows []change }

// change is one change, or several of one kind that came together.
type change struct {
	first, last time.Time
	key         string // of those that belong together
	one         string // the sentence of the first
	count       int
	parts       []string // of the first few
	reason      string
}

const (
	together   = 10 * time.Second // between changes that are one row
	maxRows    = 40
	maxParts   = 4
	claimedKey = "claimed"
	freedKey   = "freed"
)

// add takes in the changes of a look.
func (h *history) add(changes []inspect.Change) {
	for _, c := range changes {
		if len(h.rows) > 10*maxRows {
			h.trim()
		}
		row := rowOf(c)
		i := slices.IndexFunc(h.rows, func(r change) bool {
			return row.key != "" && r.key == row.key && row.first.Sub(r.last) <= together && r.first.Sub(row.first) <= together
		})
		if i < 0 {
			h.rows = append(h.rows, row)
			continue
		}
		r := &h.rows[i]
		r.count++
		if len(r.parts) < maxParts {
			r.parts = append(slices.Clone(r.parts), row.parts...)
		}
		if row.first.Before(r.first) {
			r.first = row.first
		}
		if row.last.After(r.last) {
			r.last = row.last
		}
	}
	h.trim()
}

// trim keeps the newest.
func (h *history) trim() {
	slices.SortStableFunc(h.rows, func(a, b change) int { return b.last.Compare(a.last) })
	h.rows = h.rows[:min(len(h.rows), maxRows)]
}

func rowOf(c inspect.Change) change {
	row := change{first: c.At, last: c.At, one: c.String(), count: 1}
	if c.Reason != nil {
		row.reason = c.Reason.String()
	}
	switch c.Kind {
	case inspect.MemberJoined:
		row.key, row.parts = string(c.Kind), []string{c.Member}
	case inspect.Claimed:
		row.key = claimedKey + " " + row.reason
		alone := c
		alone.Reason = nil
		row.parts = []string{alone.String()}
	case inspect.Freed:
		row.key, row.parts = freedKey+" "+c.From, []string{c.Partition}
	case inspect.MemberGone, inspect.Blocked:
	}
	return row
}

// newest returns the changes, the newest first.
func (h *history) newest() []change { return slices.Clone(h.rows) }

// String returns the sentence of the only change, or one for all.
func (c change) String() string {
	if c.count == 1 {
		return c.one
	}
	list := strings.Join(c.parts, ", ")
	if more := c.count - len(c.parts); more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	switch {
	case strings.HasPrefix(c.key, claimedKey):
		because := ""
		if c.reason != "" {
			because = " (" + c.reason + ")"
		}
		return fmt.Sprintf("%d partitions claimed%s: %s", c.count, because, list)
	case strings.HasPrefix(c.key, freedKey):
		return fmt.Sprintf("%d partitions have no owner, before %s: %s", c.count, strings.TrimPrefix(c.key, freedKey+" "), list)
	default:
		return list + " joined"
	}
}
