package functions

import (
	"fmt"
	"math"
	"slices"

	"github.com/kielgo/kiel/allocfn"
)

// Function is an allocation function whose plans are measured.
type Function struct {
	Name     string
	Func     allocfn.Func // unless it is a peer's
	Numbered bool         // it is for members with numbers
	peer     bool
}

// FranzGo is the name of the peer whose movement is measured.
const FranzGo = "franz-go sticky"

// Functions returns ours, and last the peer that keeps what members had.
func Functions() []Function {
	var all []Function
	for _, f := range allocfn.All() {
		all = append(all, Function{Name: f.Title, Func: f.Func, Numbered: f.Numbered})
	}
	return append(all, Function{Name: FranzGo, peer: true})
}

// plan returns what the function makes of g, when members have what before gave them, which functions of ours do not look at.
func (f Function) plan(g Group, before *allocfn.Plan) (*allocfn.Plan, error) {
	in := g.Input()
	if !f.peer {
		a, err := allocfn.Call(f.Func, in)
		return &allocfn.Plan{Input: in, Assignment: a}, err
	}
	var has map[string]map[string][]int32
	if before != nil {
		has = allocfn.Mapping(before.Input, before.Assignment)
	}
	plan, err := stickyPlan(g, has)
	if err != nil {
		return nil, err
	}
	a, err := assignmentOf(g, plan)
	return &allocfn.Plan{Input: in, Assignment: a}, err
}

// Moves is what a function moves in groups of one size, over seeds that decide on the members' names and on who joins and leaves.
type Moves struct {
	Function            string
	Members, Partitions int
	TopicSize           int
	Seeds               int
	Join, Leave         Ratio
	Spread              int // the largest in total, before and after
	TopicSpread         int // the largest within a topic
}

// Ratio is how many partitions changed hands.
type Ratio struct {
	Least int // by seeds, the sum of the least that must move between perfectly even plans
	Moved int // the sum of what did
	// Times the least, in thousandths, rounded: the mean of the seeds, and the worst.
	Mean, Worst int
}

// Share returns which part of all partitions moved in the mean.
func (m *Moves) Share(r Ratio) float64 {
	return float64(r.Moved) / float64(m.Seeds) / float64(m.Partitions)
}

// MoveSizes returns those that joins and leaves are measured at.
func MoveSizes() []Size {
	return []Size{{10, 1_000, 100}, {100, 10_000, 100}, {1_000, 100_000, 100}}
}

// MeasureMoves measures a function at one size.
func MeasureMoves(f Function, s Size, seeds int) (Moves, error) {
	m := Moves{Function: f.Name, Members: s.Members, Partitions: s.Partitions, TopicSize: s.TopicSize, Seeds: seeds}
	if f.Numbered {
		m.Seeds = 1 // there is nothing that seeds could decide on
	}
	var join, leave float64
	for seed := range uint64(m.Seeds) {
		c := changes(seed, s.Members, s.Partitions, s.TopicSize, f.Numbered)
		for _, way := range []struct {
			to  Group
			r   *Ratio
			sum *float64
		}{{c.joined, &m.Join, &join}, {c.left, &m.Leave, &leave}} {
			moved, least, err := m.step(f, c.before, way.to)
			if err != nil {
				return m, fmt.Errorf("%s, %d members, seed %d: %w", f.Name, s.Members, seed, err)
			}
			ratio := float64(moved) / float64(least)
			way.r.Moved += moved
			way.r.Least += least
			way.r.Worst = max(way.r.Worst, thousandths(ratio))
			*way.sum += ratio
		}
	}
	m.Join.Mean, m.Leave.Mean = thousandths(join/float64(m.Seeds)), thousandths(leave/float64(m.Seeds))
	return m, nil
}

func thousandths(x float64) int { return int(math.Round(1000 * x)) }

// step measures one change and keeps the largest spreads.
func (m *Moves) step(f Function, from, to Group) (moved, least int, err error) {
	before, err := f.plan(from, nil)
	if err != nil {
		return 0, 0, err
	}
	after, err := f.plan(to, before)
	if err != nil {
		return 0, 0, err
	}
	all, err := allocfn.Measure(*before, *after)
	if err != nil {
		return 0, 0, err
	}
	m.Spread = max(m.Spread, all.Total.Before.Spread(), all.Total.After.Spread())
	for _, t := range all.Topics {
		m.TopicSpread = max(m.TopicSpread, t.Before.Spread(), t.After.Spread())
	}
	least = all.LowerBound
	if !all.Total.Before.Even || !all.Total.After.Even {
		if least, err = evenLeast(from, to); err != nil {
			return 0, 0, err
		}
	}
	return all.Total.Moved, least, nil
}

// evenLeast is the lower bound for functions whose own plans are not even: what moves at least between even plans of the same
// groups.
func evenLeast(from, to Group) (int, error) {
	balanced := Function{Func: allocfn.Balanced()}
	before, err := balanced.plan(from, nil)
	if err != nil {
		return 0, err
	}
	after, err := balanced.plan(to, nil)
	if err != nil {
		return 0, err
	}
	m, err := allocfn.Measure(*before, *after)
	return m.LowerBound, err
}

// Switch is what moves when a group goes from one function to another.
type Switch struct {
	From, To            string
	Members, Partitions int
	TopicSize           int
	Seeds               int
	Moved               int // in thousandths of all partitions, rounded
}

// MeasureSwitch measures it at one size, with members that stay.
func MeasureSwitch(from, to Function, s Size, seeds int) (Switch, error) {
	r := Switch{
		From: from.Name, To: to.Name, Members: s.Members, Partitions: s.Partitions, TopicSize: s.TopicSize, Seeds: seeds,
	}
	moved := 0
	for seed := range uint64(seeds) {
		g := changes(seed, s.Members, s.Partitions, s.TopicSize, false).before
		before, err := from.plan(g, nil)
		if err != nil {
			return r, err
		}
		after, err := to.plan(g, nil)
		if err != nil {
			return r, err
		}
		m, err := allocfn.Measure(*before, *after)
		if err != nil {
			return r, err
		}
		moved += m.Total.Moved
	}
	r.Moved = thousandths(float64(moved) / float64(seeds*s.Partitions))
	return r, nil
}

// Spread is how evenly a function spreads topics of one size.
type Spread struct {
	Function            string
	Members, Partitions int
	TopicSize           int
	Seeds               int
	// The most that a member has less the least, of one topic: the mean of all topics in thousandths, rounded, and the worst.
	TopicMean, TopicWorst int
	// The same of all partitions.
	Mean, Worst int
}

// MeasureSpread measures a function at one size.
func MeasureSpread(f Function, s Size, seeds int) (Spread, error) {
	r := Spread{Function: f.Name, Members: s.Members, Partitions: s.Partitions, TopicSize: s.TopicSize, Seeds: seeds}
	var topics []int
	total := 0
	for seed := range uint64(seeds) {
		p, err := f.plan(changes(seed, s.Members, s.Partitions, s.TopicSize, f.Numbered).before, nil)
		if err != nil {
			return r, err
		}
		m, err := allocfn.Measure(*p, *p)
		if err != nil {
			return r, err
		}
		for _, t := range m.Topics {
			topics = append(topics, t.After.Spread())
		}
		total += m.Total.After.Spread()
		r.Worst = max(r.Worst, m.Total.After.Spread())
	}
	sum := 0
	for _, s := range topics {
		sum += s
	}
	r.TopicWorst = slices.Max(topics)
	r.TopicMean = thousandths(float64(sum) / float64(len(topics)))
	r.Mean = thousandths(float64(total) / float64(seeds))
	return r, nil
}
