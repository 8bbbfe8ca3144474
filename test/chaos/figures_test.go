package chaos_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kielgo/kiel/internal/eventlog"
	"github.com/kielgo/kiel/test/members"
)

// incident is something that a group has to deal with: a fault, the end of one, a member that comes or goes. What happens from
// then on until the next is put down to it.
type incident struct {
	name    string
	at      int64  // when it began
	healed  int64  // when what lasted was ended: until all is owned is counted from here; 0 is at
	noticed int64  // when somebody had noticed at the latest, by what logs do not tell; or 0
	unseen  string // why nobody need notice; "" when somebody must
	settled int64  // when all was seen to be owned, last
	until   int64  // when the next began, or the scenario ended; 0 is now
}

// measured is what an incident did to the group.
type measured struct {
	at         int64
	detect     time.Duration // until somebody noticed, see [fleet.firstSign]; negative: nobody has
	owned      time.Duration // until the last claim after which all was owned, or 0; negative: it is not
	rebalances int           // views for which a member took or gave up something, the most of any
}

func (r measured) String() string {
	return fmt.Sprintf("detected %s, owned %s, rebalances %d", span(r.detect), span(r.owned), r.rebalances)
}

func ms(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// span tells how long something took; "-" is never.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "-"
	case d > 0 && d < time.Millisecond:
		return "<1ms"
	default:
		return ms(d).String()
	}
}

// begin begins an incident.
func (f *fleet) begin(name string, at int64) *incident {
	if n := len(f.incidents); n > 0 {
		f.incidents[n-1].until = at
	}
	i := &incident{name: name, at: at}
	f.incidents, f.unsettled = append(f.incidents, i), true
	return i
}

// happens begins an incident, unless the group has not settled since another: then it is part of that.
func (f *fleet) happens(name string, at int64) {
	if !f.unsettled {
		f.begin(name, at)
	}
}

// last is the incident that goes on.
func (f *fleet) last() *incident {
	f.t.Helper()
	if len(f.incidents) == 0 {
		f.t.Fatal("nothing has happened")
	}
	return f.incidents[len(f.incidents)-1]
}

// healed says that what lasted has been ended now.
func (f *fleet) healed() { f.last().healed = members.Monotonic() }

// noticed says that somebody has noticed by now, at the latest: logs may tell that it was earlier.
func (f *fleet) noticed() {
	if i := f.last(); i.noticed == 0 {
		i.noticed = members.Monotonic()
	}
}

// unnoticed says why nobody need notice what has happened.
func (f *fleet) unnoticed(why string) { f.last().unseen = why }

// fault notes that something is broken now.
func (f *fleet) fault(kind string) { f.faultAt(kind, members.Monotonic()) }

// faultAt notes that something was broken at a time.
func (f *fleet) faultAt(kind string, at int64) {
	f.struck(kind)
	f.happens(kind, at)
}

// struck counts a fault that has hit something.
func (f *fleet) struck(kind string) {
	f.faults++
	injected.add(kind)
}

// measure breaks something by do, waits until all is owned again, and says what it took.
func (f *fleet) measure(name string, do func()) measured {
	f.t.Helper()
	f.read()
	f.begin(name, members.Monotonic())
	do()
	f.settle()
	return f.measured()
}

// measured is what the incident that goes on has done so far.
func (f *fleet) measured() measured {
	f.t.Helper()
	return f.of(f.last())
}

// since is what happened from a time on until now.
func (f *fleet) since(at int64) measured {
	now := members.Monotonic()
	return f.of(&incident{at: at, settled: now, until: now})
}

// look is a moment at which all may be owned, and since when nothing is broken.
type look struct{ at, healed int64 }

// of is what an incident did to the group, as the logs read so far tell.
func (f *fleet) of(i *incident) measured {
	until := i.until
	if until == 0 {
		until = members.Monotonic()
	}
	r := measured{at: i.at, detect: -1, owned: -1}
	first := f.firstSign(i.at, until)
	if i.noticed != 0 && (first == 0 || i.noticed < first) {
		first = i.noticed
	}
	if first > 0 {
		r.detect = time.Duration(first - i.at)
	}
	// All is owned when it was seen to be so; else at the end, for trust that had just ended then is in the logs by now; else, of
	// what the group had no time to settle from, when it was settled from what came next.
	looks := []look{{i.settled, i.healed}, {until, i.healed}}
	for _, next := range f.incidents {
		if i.settled == 0 && next.at > i.at {
			looks = append(looks, look{next.settled, max(i.healed, next.healed)})
		}
	}
	for _, l := range looks {
		if since, ok := f.ownedSince(l.at); ok && l.at >= i.at {
			r.owned = max(0, time.Duration(since-max(i.at, l.healed)))
			break
		}
	}
	for _, m := range f.all {
		r.rebalances = max(r.rebalances, m.rebalancesIn(i.at, until))
	}
	return r
}

// figures are what each scenario reports.
type figures struct {
	scenario int
	name     string // of the test
	values   [len(figureNames)]string
}

var figureNames = [...]string{"detect", "owned", "overlap", "duplicates", "lost", "rebalances"}

// figures reports, of each incident, what it did to the group, and of the scenario the six figures that all have. What can't be
// said fails the test, see [fleet.sum].
func (f *fleet) figures(r *eventlog.Report) {
	f.t.Helper()
	f.reported = true
	row, told, wrong := f.sum(r)
	for _, one := range told {
		f.attr(one.name, one.text)
	}
	for i, name := range figureNames {
		f.attr(name, row.values[i])
	}
	for _, what := range wrong {
		f.t.Error(what)
	}
	table.add(row)
}

// told is what one incident did to the group.
type told struct{ name, text string }

// sum returns the six figures, what each incident did, and what is wrong with that: nothing has happened, nobody has noticed and
// nobody has said why, not everything was owned again, or check-events has seen owners in other places than we have.
func (f *fleet) sum(r *eventlog.Report) (row figures, each []told, wrong []string) {
	if len(f.incidents) == 0 {
		return figures{}, nil, []string{"nothing has happened"}
	}
	var detects, owneds []time.Duration
	names := map[string]int{}
	for _, i := range f.incidents {
		if i.until == 0 {
			i.until = f.ended
		}
		took, name := f.of(i), i.name
		if names[name]++; names[name] > 1 {
			name += fmt.Sprintf(" %d", names[name])
		}
		text := took.String()
		if took.detect < 0 {
			if text += ": " + i.unseen; i.unseen == "" {
				wrong = append(wrong, i.name+": nobody has noticed")
			}
		}
		if took.owned < 0 {
			wrong = append(wrong, i.name+": not everything was owned again")
		}
		each = append(each, told{name, text})
		detects, owneds = append(detects, took.detect), append(owneds, took.owned)
	}
	overlap, longest := fmt.Sprint(r.Overlaps), f.longestOverlap()
	if (longest > 0) != (r.Overlaps+r.Exempted > 0) {
		wrong = append(wrong, fmt.Sprintf("a partition had two owners for %v, and check-events reports %d overlaps and %d exempt ones",
			longest, r.Overlaps, r.Exempted))
	}
	if r.Exempted > 0 {
		overlap += fmt.Sprintf(" (exempt: %d, at most %s)", r.Exempted, span(longest))
	}
	return figures{f.scenario, f.name(), [...]string{
		summary(detects), summary(owneds), overlap, fmt.Sprint(r.Duplicates), fmt.Sprint(r.Lost), f.rebalancesSince(f.incidents[0].at),
	}}, each, wrong
}

// summary tells what several incidents took: the median and the worst if they are many.
func summary(all []time.Duration) string {
	ds := slices.DeleteFunc(slices.Clone(all), func(d time.Duration) bool { return d < 0 })
	slices.Sort(ds)
	never := ""
	if n := len(all) - len(ds); n > 0 {
		never = fmt.Sprintf(" (- × %d)", n)
	}
	switch {
	case len(ds) == 0:
		return "-"
	case len(ds) <= 3:
		texts := make([]string, len(ds))
		for i, d := range ds {
			texts[i] = span(d)
		}
		return strings.Join(texts, ", ") + never
	default:
		return fmt.Sprintf("%s, at most %s of %d", span(ds[len(ds)/2]), span(ds[len(ds)-1]), len(ds)) + never
	}
}

// rebalancesSince tells how many rebalances each member has had, those of one name together.
func (f *fleet) rebalancesSince(at int64) string {
	const few = 6
	counts, total := map[string]int{}, 0
	for _, m := range f.all {
		n := m.rebalancesIn(at, f.ended)
		counts[m.Name] += n
		total += n
	}
	names := slices.Sorted(maps.Keys(counts))
	if len(names) > few {
		most := slices.MaxFunc(names, func(a, b string) int { return counts[a] - counts[b] })
		return fmt.Sprintf("%s %d, all %d members %d", most, counts[most], len(names), total)
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, counts[name])
	}
	return strings.Join(names, ", ")
}
