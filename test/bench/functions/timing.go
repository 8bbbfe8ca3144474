package functions

import (
	"fmt"
	"runtime"
	"slices"
	"time"
)

// Size is a group that is timed; where somebody joins or leaves, the group before.
type Size struct {
	Members, Partitions int
	TopicSize           int // how many partitions each topic has
}

// Sizes returns those that are timed. Topics are large where there are many partitions, for the peers' sake: each of their
// members names all topics.
func Sizes() []Size {
	return []Size{
		{100, 1_000, 100},
		{1_000, 10_000, 100},
		{2_000, 100_000, 1_000},
		{2_000, 1_000_000, 2_000},
		{10_000, 1_000_000, 2_000},
	}
}

// Time is what one plan took.
type Time struct {
	Library, Name       string
	What                string
	Members, Partitions int
	TopicSize           int
	Rounds              int   // in how many it took part
	Min, Median         int64 // nanoseconds
	Allocs, Bytes       uint64
}

// Size returns the group that was timed.
func (t Time) Size() Size { return Size{t.Members, t.Partitions, t.TopicSize} }

const (
	// In a round plans are made for about so long, and their mean counts.
	roundTime = 20 * time.Millisecond
	// Who has taken so long at one size takes part in no more rounds.
	sizeTime = 30 * time.Second
	// Where there is more than one round, there are more as long as a size took no longer than this: a machine that is slow for
	// some seconds would be slow in all of a few short ones.
	leastTime = time.Minute
)

// runner is a contestant at one size.
type runner struct {
	Run
	result Time
	repeat int             // plans in a round
	took   []time.Duration // of one plan, by round
	spent  time.Duration
}

// TimeAll times the contestants at one size, in turn, in so many rounds or more.
func TimeAll(all []Contestant, s Size, rounds int) ([]Time, error) {
	g := NumberedGroup(s.Members, s.Partitions, s.TopicSize)
	var runners []*runner
	for _, c := range all {
		if c.Limit > 0 && s.Members*s.Partitions > c.Limit {
			continue
		}
		r, err := newRunner(c, s, g)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", c.Library, c.Name, err)
		}
		runners = append(runners, r)
	}
	begin := time.Now()
	for round := 0; round < rounds || rounds > 1 && time.Since(begin) < leastTime; round++ {
		for _, r := range runners {
			if round > 0 && r.spent > sizeTime {
				continue
			}
			if err := r.round(); err != nil {
				return nil, fmt.Errorf("%s %s: %w", r.result.Library, r.result.Name, err)
			}
		}
	}
	var results []Time
	for _, r := range runners {
		results = append(results, r.summary())
	}
	return results, nil
}

// newRunner makes one plan, checks it and counts what it allocates.
func newRunner(c Contestant, s Size, g Group) (*runner, error) {
	run, err := c.Prepare(g)
	if err != nil {
		return nil, err
	}
	r := &runner{Run: run, result: Time{
		Library: c.Library, Name: c.Name, What: c.What, Members: s.Members, Partitions: s.Partitions, TopicSize: s.TopicSize,
	}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := time.Now()
	err = r.Plan()
	took := time.Since(begin)
	runtime.ReadMemStats(&after)
	if err != nil {
		return nil, err
	}
	r.result.Allocs, r.result.Bytes = after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
	r.repeat = int(roundTime/max(took, time.Microsecond)) + 1
	return r, r.Check()
}

// round begins with a collected heap, so that nobody pays for another's garbage.
func (r *runner) round() error {
	runtime.GC()
	begin := time.Now()
	for range r.repeat {
		if err := r.Plan(); err != nil {
			return err
		}
	}
	sum := time.Since(begin)
	r.spent += sum
	r.took = append(r.took, sum/time.Duration(r.repeat))
	return nil
}

func (r *runner) summary() Time {
	slices.Sort(r.took)
	t := r.result
	t.Rounds, t.Min, t.Median = len(r.took), r.took[0].Nanoseconds(), r.took[(len(r.took)-1)/2].Nanoseconds()
	return t
}
