package sim_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// plan is all that a run does to its group. It is made of the seed alone, before the run begins, and never changes.
type plan struct {
	Seed       uint64
	Timeout    time.Duration // T, of the sessions
	Tick       time.Duration // of the servers
	Slots      int           // members, when all that ever join are there
	Members    int           // members at the start
	Partitions int
	Topics     int   // to which the partitions belong in turn; 0 = one
	Patterns   bool  // members of odd slots ask by patterns
	Lists      []int // by slot: the topics that its first process asks for, see plan.list
	Func       string
	Hours      float64 // that it should last, and at least does
	Group      bool    // members are Groups of package consumer, on kfake
	Drills     bool    // it has each drill once, and nothing else
	Deploys    bool    // it has drills with topic lists that differ, and nothing else
	Phases     []phase
}

// phase is a time of faults and then a time without any.
type phase struct {
	Idle  time.Duration // before the first step
	Drill bool          // one fault alone, with a bound of its own
	Steps []step
}

// step is one fault. What it means is for its kind to say.
type step struct {
	At     time.Duration // since the phase's first step
	Kind   string
	Member int           // slot
	Part   int           // partition, or listener
	For    time.Duration // how long it lasts; 0 = it is over at once
	D      time.Duration // a delay
	N      int           // a number, or a variant
}

// String writes a step like a line of a log.
func (s step) String() string {
	b := fmt.Sprintf("%9.3fs %-18s m%d p%d", s.At.Seconds(), s.Kind, s.Member, s.Part)
	if s.For > 0 {
		b += fmt.Sprintf(" for %v", s.For)
	}
	if s.D > 0 {
		b += fmt.Sprintf(" d=%v", s.D)
	}
	return fmt.Sprintf("%s n=%d", b, s.N)
}

// id names a step of a plan, for -keep.
type id struct{ phase, step int }

func (i id) String() string { return fmt.Sprintf("%d.%d", i.phase, i.step) }

// ids returns all steps of a plan up to a phase.
func (p *plan) ids(last int) []id {
	var all []id
	for i, ph := range p.Phases[:min(last+1, len(p.Phases))] {
		for k := range ph.Steps {
			all = append(all, id{i, k})
		}
	}
	return all
}

// only returns the plan with these steps alone. Phases without any are left out, and the others wait a minute instead of idling
// for hours.
func (p *plan) only(keep []id) *plan {
	cut := *p
	cut.Phases = nil
	for i, ph := range p.Phases {
		next := phase{Idle: min(ph.Idle, time.Minute), Drill: ph.Drill}
		for k, s := range ph.Steps {
			if slices.Contains(keep, id{i, k}) {
				next.Steps = append(next.Steps, s)
			}
		}
		if len(next.Steps) > 0 {
			cut.Phases = append(cut.Phases, next)
		}
	}
	return &cut
}

// String prints a plan up to its last phase.
func (p *plan) String() string { return p.until(len(p.Phases) - 1) }

func (p *plan) until(last int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: T %v, tick %v, %d of %d members, %d partitions, %s\n",
		p.Seed, p.Timeout, p.Tick, p.Members, p.Slots, p.Partitions, p.Func)
	if p.differ() {
		fmt.Fprintf(&b, "%d topics, lists %v, patterns %t\n", p.Topics, p.Lists, p.Patterns)
	}
	for i, ph := range p.Phases[:min(last+1, len(p.Phases))] {
		fmt.Fprintf(&b, "phase %d after %v, drill %v\n", i, ph.Idle, ph.Drill)
		for k, s := range ph.Steps {
			fmt.Fprintf(&b, "  %-6s %v\n", id{i, k}, s)
		}
	}
	return b.String()
}

// length is how long the plan lasts, but for what settling takes.
func (p *plan) length() time.Duration {
	var d time.Duration
	for _, ph := range p.Phases {
		d += ph.Idle
		if n := len(ph.Steps); n > 0 {
			d += ph.Steps[n-1].At
		}
	}
	return d
}

// newPlan makes the plan of a seed. Two thirds of the seeds are days: hours of calm between the bursts, and long session
// timeouts, for those make an hour of calm cheap. The others have short timeouts, little calm, and last a quarter of that; one of
// eight of them has up to 250 partitions, and lasts a third as long.
func newPlan(seed uint64, length time.Duration, members int) *plan {
	r := rand.New(rand.NewPCG(seed, 0x6b69656c))
	p := &plan{Seed: seed, Hours: length.Hours(), Func: []string{"balanced", "roundrobin", "range"}[r.IntN(3)]}
	timeouts, least, most := []time.Duration{time.Minute, 90 * time.Second, 2 * time.Minute}, 30*time.Minute, 3*time.Hour
	if seed%3 == 0 {
		timeouts = []time.Duration{6 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second}
		least, most = 2*time.Minute, 30*time.Minute
		length /= 4
	}
	p.Timeout = timeouts[r.IntN(len(timeouts))]
	p.Tick = p.Timeout / time.Duration(3+r.IntN(6))
	p.Members = max(members, 3)
	p.Slots = p.Members + 1 + r.IntN(3)
	p.Partitions = 3 + r.IntN(7)
	if crowded(seed) {
		length /= 3
		p.Partitions = 10 + r.IntN(241)
	}
	var drills []string
	for len(p.Phases) == 0 || p.length() < length {
		ph := phase{Idle: between(r, least, most)}
		if ph.Drill = r.IntN(3) == 0; ph.Drill {
			if len(drills) == 0 {
				drills = drillKinds()
				r.Shuffle(len(drills), func(i, k int) { drills[i], drills[k] = drills[k], drills[i] })
			}
			ph.Steps = []step{p.draw(r, drills[0])}
			drills = drills[1:]
		} else {
			var at time.Duration
			// Some phases are a storm, in others one fault meets what the one before has left.
			pace := []time.Duration{500 * time.Millisecond, p.Timeout / 4, p.Timeout}[r.IntN(3)]
			for range 6 + r.IntN(20) {
				s := p.draw(r, pick(r))
				s.At = at
				ph.Steps = append(ph.Steps, s)
				at += between(r, 0, 2*pace)
			}
		}
		p.Phases = append(p.Phases, ph)
	}
	p.addTopics(least)
	return p
}

// crowded says whether the groups of a seed, which has little calm, have many partitions.
func crowded(seed uint64) bool { return seed%24 == 9 }

// drillKinds returns the kinds of which there are drills, sorted, but for those that a plan gets by addTopics alone.
func drillKinds() []string {
	return slices.DeleteFunc(slices.Clone(kinds()), func(kind string) bool {
		return faults[kind].drill == nil || faults[kind].weight == 0
	})
}

// newDrills makes a plan of each drill once, in an order of the seed's. Those that need room for one more member come after one
// has left; storm, which takes all room, is the last.
func newDrills(seed uint64, members int) *plan {
	r := rand.New(rand.NewPCG(seed, 0x6472696c6c))
	p := &plan{Seed: seed, Drills: true, Func: []string{"balanced", "roundrobin", "range"}[r.IntN(3)]}
	p.Timeout = []time.Duration{6 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute}[r.IntN(4)]
	p.Tick = p.Timeout / time.Duration(3+r.IntN(6))
	p.Members = max(members, 3)
	p.Slots = p.Members + 2
	p.Partitions = 3 + r.IntN(7)
	kinds := drillKinds()
	r.Shuffle(len(kinds), func(i, k int) { kinds[i], kinds[k] = kinds[k], kinds[i] })
	slices.SortStableFunc(kinds, func(a, b string) int {
		switch {
		case a == "storm" && b != "storm":
			return 1
		case b == "storm" && a != "storm":
			return -1
		}
		return 0
	})
	for _, kind := range kinds {
		p.Phases = append(p.Phases, phase{Idle: 3 * time.Minute, Drill: true, Steps: []step{p.draw(r, kind)}})
	}
	return p
}

// between draws a time in whole milliseconds.
func between(r *rand.Rand, from, to time.Duration) time.Duration {
	if to <= from {
		return from
	}
	return (from + time.Duration(r.Int64N(int64(to-from)))).Truncate(time.Millisecond)
}

// pick draws a kind of fault by weight.
func pick(r *rand.Rand) string {
	total := 0
	for _, kind := range kinds() {
		total += faults[kind].weight
	}
	n := r.IntN(total)
	for _, kind := range kinds() {
		if n -= faults[kind].weight; n < 0 {
			return kind
		}
	}
	panic("no kind")
}

// draw draws a step of a kind.
func (p *plan) draw(r *rand.Rand, kind string) step {
	s := step{Kind: kind, Member: r.IntN(p.Slots), Part: r.IntN(p.Partitions), N: r.IntN(1 << 16)}
	f := faults[kind]
	from, to := f.from*float64(p.Timeout), f.to*float64(p.Timeout)
	s.For = between(r, time.Duration(from), time.Duration(to))
	s.D = between(r, 0, time.Duration(f.delay*float64(p.Timeout)))
	return s
}
