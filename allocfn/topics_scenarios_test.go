package allocfn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
)

// topicShape is a way in which members ask for different topics.
type topicShape struct {
	name string
	asks func(k, n, topic, topics int) bool // whether member k of n asks for a topic
	most float64                            // what Balanced and TopicBalanced move in the mean, over the least
}

func topicShapes() []topicShape {
	return []topicShape{
		{"pyramid", func(k, n, topic, topics int) bool { return topic <= k*topics/n }, 1.4},
		{"pyramid-reversed", func(k, n, topic, topics int) bool { return topic >= k*topics/n }, 2.05},
		{"disjoint", func(k, _, topic, topics int) bool { return topic == k%topics }, 1.15},
		{"chain", func(k, _, topic, topics int) bool { return topic == k%topics || topic == (k+1)%topics }, 2.12},
		{"one-asks-for-all", func(k, _, topic, topics int) bool { return k == 0 || topic == k%topics }, 2.45},
		{"nested", func(k, n, topic, topics int) bool { return topic == 0 || topic < topics*(3*k/n)/2 }, 1.31},
		{"common-and-other", func(k, _, topic, topics int) bool { return topic == 0 || topic == 1+k%(topics-1) }, 1.71},
	}
}

// group returns a group of members of these names that ask for topics of the shape, each of so many partitions. Names are in any
// order.
func (s topicShape) group(names []string, topics, partitions int) allocfn.Input {
	var ps []kiel.Partition
	for topic := range topics {
		ps = append(ps, topicOf(fmt.Sprintf("topic-%d", topic), partitions)...)
	}
	in := groupOf(names, ps...)
	for k, name := range names {
		m := member(in, name)
		for topic := range topics {
			if s.asks(k, len(names), topic, topics) {
				m.Topics = append(m.Topics, fmt.Sprintf("topic-%d", topic))
			}
		}
	}
	return in
}

// member returns the member of a name.
func member(in allocfn.Input, name string) *allocfn.Member {
	return &in.Members[slices.IndexFunc(in.Members, func(m allocfn.Member) bool { return m.Name == name })]
}

// moves compares two plans. moved are the partitions of both plans that have another owner after, and least is how many must move
// for members to have as many of these as they have after.
func moves(before allocfn.Input, a allocfn.Assignment, after allocfn.Input, b allocfn.Assignment) movement {
	owner := make(map[kiel.Partition]string)
	for i, p := range before.Partitions {
		owner[p] = before.Members[a[i]].Name
	}
	var m movement
	counts := make(map[string]int) // before, less after
	for i, p := range after.Partitions {
		old, kept := owner[p]
		if !kept {
			continue
		}
		now := after.Members[b[i]].Name
		counts[old]++
		counts[now]--
		if old != now {
			m.moved++
		}
	}
	for _, n := range counts {
		m.least += max(0, n)
	}
	return m
}

// sumOf adds up movements.
type sumOf struct{ moved, least, changes int }

func (s *sumOf) add(m movement) {
	s.moved += m.moved
	s.least += m.least
	s.changes++
}

// String returns the mean in partitions, and in multiples of the least.
func (s *sumOf) String() string {
	return fmt.Sprintf("%.0f, %.2f times the least", float64(s.moved)/float64(s.changes), float64(s.moved)/float64(s.least))
}

// TestTopicShapes checks plans of each shape, before and after a member that asks as the shape says joins or leaves, and before
// and after the set has one topic more that one member asks for; and counts what moves.
func TestTopicShapes(t *testing.T) {
	const members, topics, partitions, seeds = 10, 5, 200, 8
	for _, shape := range topicShapes() {
		for _, f := range topicFuncs() {
			t.Run(shape.name+"/"+f.Name, func(t *testing.T) {
				var join, leave, topic sumOf
				for seed := range uint64(seeds) {
					r := rand.New(rand.NewPCG(seed, 17))
					plan := func(in allocfn.Input) allocfn.Assignment {
						a := mustCall(t, f, in)
						checkTopicPlan(t, f, in, a)
						return a
					}
					more := shape.group(randomNames(r, members+1), topics, partitions)
					in := without(more, r.IntN(members+1))
					fewer := without(in, r.IntN(members))
					a := plan(in)
					join.add(moves(in, a, more, plan(more)))
					leave.add(moves(in, a, fewer, plan(fewer)))

					longer := in
					longer.Partitions = append(slices.Clone(in.Partitions), topicOf("new", partitions)...)
					kiel.SortPartitions(longer.Partitions)
					longer.Members = slices.Clone(in.Members)
					m := &longer.Members[r.IntN(members)]
					m.Topics = append(slices.Clone(m.Topics), "new")
					topic.add(moves(in, a, longer, plan(longer)))
				}
				t.Attr("join", join.String())
				t.Attr("leave", leave.String())
				t.Attr("topic", topic.String())
				for _, sum := range []*sumOf{&join, &leave, &topic} {
					if f.Name != "roundrobin" && f.Name != "range" && float64(sum.moved) > shape.most*float64(sum.least) {
						t.Errorf("moved %v, want %.2f times at most", sum, shape.most)
					}
				}
			})
		}
	}
}

// TestTopicGroupMoves holds Balanced and TopicBalanced to what moves of a group of topics whose askers' totals are as before when
// it is divided: nothing where its askers are as before, and where one more or one less asks for it, the least and 2.5 times the
// root of its partitions, for TopicBalanced of these times its topics. Members have one of a few random lists.
func TestTopicGroupMoves(t *testing.T) {
	for _, f := range []allocfn.Func{allocfn.Balanced(), allocfn.TopicBalanced()} {
		t.Run(f.Name, func(t *testing.T) {
			still, changed, worst := 0, 0, 0.0
			for seed := range uint64(500) {
				r := rand.New(rand.NewPCG(seed, 19))
				members, topics := 3+r.IntN(20), 2+r.IntN(6)
				lists := make([]uint, 2+r.IntN(3)) // a bit for each topic
				for k := range lists {
					lists[k] = 1 + r.UintN(1<<topics-1)
				}
				shape := topicShape{asks: func(k, _, topic, _ int) bool { return lists[k%len(lists)]>>topic&1 == 1 }}
				before := shape.group(randomNames(r, members), topics, 1+r.IntN(10*members))
				after := without(before, r.IntN(members))
				if seed%2 == 0 {
					before, after = after, before
				}
				now := divisions(after, mustCall(t, f, after))
				for topics, d := range divisions(before, mustCall(t, f, before)) {
					e, kept := now[topics]
					askers, same := d.differ(e)
					if !kept || !same || askers > 1 {
						continue
					}
					moved, least := d.moves(e)
					if askers == 0 {
						still++
						if moved > 0 {
							t.Fatalf("seed %d: %d of %s moved, and its askers are as before", seed, moved, topics)
						}
						continue
					}
					changed++
					root := math.Sqrt(float64(len(d.owner)))
					if f.Name == "topicbalanced" {
						root = math.Sqrt(float64(len(d.owner) * len(d.group.topics)))
					}
					worst = max(worst, float64(moved-least)/root)
					if float64(moved-least) > movementFactor*root {
						t.Errorf("seed %d: %d of %s moved, at least %d must", seed, moved, topics, least)
					}
				}
			}
			t.Attr("groups", fmt.Sprintf("%d with the same askers, %d with one more or less, worst %.2f", still, changed, worst))
			if still < 200 || changed < 200 {
				t.Errorf("only %d groups with the same askers, and %d with one more or less", still, changed)
			}
		})
	}
}

// division is what became of a group of topics.
type division struct {
	group *askerGroup
	have  map[string]int // of its askers, before it was divided
	owner map[kiel.Partition]string
}

// divisions returns those of a plan by their topics.
func divisions(in allocfn.Input, a allocfn.Assignment) map[string]division {
	all := make(map[string]division)
	totals := make(map[string]int)
	for _, g := range askerGroups(in) {
		d := division{g, make(map[string]int), make(map[kiel.Partition]string)}
		for _, j := range g.askers {
			d.have[in.Members[j].Name] = totals[in.Members[j].Name]
		}
		for _, i := range g.partitions {
			d.owner[in.Partitions[i]] = in.Members[a[i]].Name
			totals[in.Members[a[i]].Name]++
		}
		all[fmt.Sprint(g.topics)] = d
	}
	return all
}

// differ returns how many members ask for one of two divisions of the same topics alone, and whether the others had as many
// partitions before.
func (d division) differ(e division) (askers int, same bool) {
	same = true
	for name, n := range d.have {
		if before, ok := e.have[name]; !ok {
			askers++
		} else if n != before {
			same = false
		}
	}
	for name := range e.have {
		if _, ok := d.have[name]; !ok {
			askers++
		}
	}
	return askers, same
}

// moves returns how many partitions have another owner in e, and how many must for members to have as many as there.
func (d division) moves(e division) (moved, least int) {
	counts := make(map[string]int)
	for p, name := range d.owner {
		counts[name]++
		counts[e.owner[p]]--
		if e.owner[p] != name {
			moved++
		}
	}
	for _, n := range counts {
		least += max(0, n)
	}
	return moved, least
}

// rolling returns the states of a group while its members are replaced one by one: each is away for one state and comes back with
// its new list of topics.
func rolling(names, from, to []string, ps []kiel.Partition) []allocfn.Input {
	group := groupOf(names, ps...)
	for i := range group.Members {
		group.Members[i].Topics = from
	}
	states := []allocfn.Input{group}
	for _, name := range names {
		k := slices.IndexFunc(group.Members, func(m allocfn.Member) bool { return m.Name == name })
		states = append(states, without(group, k))
		group.Members = slices.Clone(group.Members)
		group.Members[k].Topics = to
		states = append(states, group)
	}
	return states
}

// TestRollingDeploy adds a topic member by member, and takes it away again. In every state a partition of a topic that somebody
// asks for is with a member that asks for it.
func TestRollingDeploy(t *testing.T) {
	const members, partitions, seeds = 10, 200, 4
	var ps []kiel.Partition
	for _, topic := range []string{"a", "b", "c", "d", "new"} {
		ps = append(ps, topicOf(topic, partitions)...)
	}
	old, all := strings.Fields("a b c d"), strings.Fields("a b c d new")
	bounds := map[string][2]float64{ // what moves in all, in multiples of all partitions, and the most at once
		"roundrobin": {18.5, 0.95}, "range": {8, 0.65}, "balanced": {2.8, 0.25}, "topicbalanced": {3, 0.23},
	}
	for _, f := range topicFuncs() {
		for _, way := range []struct {
			name     string
			from, to []string
		}{{"adds", old, all}, {"takes-away", all, old}, {"nothing", all, all}} {
			t.Run(f.Name+"/"+way.name, func(t *testing.T) {
				var sum sumOf
				most := 0
				for seed := range uint64(seeds) {
					states := rolling(randomNames(rand.New(rand.NewPCG(seed, 18)), members), way.from, way.to, ps)
					var before allocfn.Assignment
					for k, in := range states {
						a := mustCall(t, f, in)
						checkTopicPlan(t, f, in, a)
						if k > 0 {
							m := moves(states[k-1], before, in, a)
							sum.add(m)
							most = max(most, m.moved)
						}
						before = a
					}
				}
				moved, atOnce := float64(sum.moved)/float64(seeds*len(ps)), float64(most)/float64(len(ps))
				t.Attr("moved", fmt.Sprintf("%.2f times all, least %.2f", moved, float64(sum.least)/float64(seeds*len(ps))))
				t.Attr("at_once", fmt.Sprintf("%.2f of all", atOnce))
				if b := bounds[f.Name]; moved > b[0] || atOnce > b[1] {
					t.Errorf("moved %.2f times all partitions, at most %.2f of them at once, want %v", moved, atOnce, b)
				}
			})
		}
	}
}
