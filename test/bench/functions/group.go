package functions

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
)

// Group is members and topics of one size.
type Group struct {
	Members    []string // sorted
	Topics     []string // sorted
	Size       int      // of each topic, in partitions
	partitions []kiel.Partition
	asks       [][]string // the topics that each member asks for; nil is all
}

// newGroup returns a group with these members; there is a whole number of topics.
func newGroup(members []string, partitions, size int) Group {
	g := Group{Members: slices.Sorted(slices.Values(members)), Size: size}
	for t := range partitions / size {
		topic := fmt.Sprintf("topic-%d", t)
		g.Topics = append(g.Topics, topic)
		for id := range size {
			g.partitions = append(g.partitions, kiel.Partition{Topic: topic, ID: int32(id)})
		}
	}
	slices.Sort(g.Topics)
	kiel.SortPartitions(g.partitions)
	return g
}

// NumberedGroup returns a group whose members are numbered, so that Ordinal can run too.
func NumberedGroup(members, partitions, size int) Group {
	return newGroup(numbered(members), partitions, size)
}

func numbered(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("consumer-%d", i)
	}
	slices.Sort(names)
	return names
}

// With returns a group of the same topics with other members.
func (g Group) With(members []string) Group {
	g.Members, g.asks = members, nil
	return g
}

// Differing returns the group with one member, another for each topic, that does not ask for the topic: no two topics have the
// same askers, if there are no more topics than members.
func (g Group) Differing() Group {
	g.asks = make([][]string, len(g.Members))
	for m := range g.asks {
		for t, topic := range g.Topics {
			if t%len(g.Members) != m {
				g.asks[m] = append(g.asks[m], topic)
			}
		}
	}
	return g
}

// asked returns the topics that a member asks for, sorted.
func (g Group) asked(member int) []string {
	if g.asks == nil {
		return g.Topics
	}
	return g.asks[member]
}

// joined returns a numbered group after the next has joined.
func (g Group) joined() Group { return g.With(numbered(len(g.Members) + 1)) }

// left returns a group after one in the middle of its names has left.
func (g Group) left() Group { return g.With(remove(g.Members, len(g.Members)/2)) }

// Input returns what allocation functions are given.
func (g Group) Input() allocfn.Input {
	in := inputOf(g.Members)
	in.Partitions = g.partitions
	return in
}

// Lists returns the members by their numbers, if they have numbers, and the partitions topic by topic, those of a topic by their
// numbers: as programs make such lists, and not in the order of an input.
func (g Group) Lists() (members []string, partitions []kiel.Partition) {
	members = slices.Clone(g.Members)
	slices.SortStableFunc(members, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	for _, topic := range g.Topics {
		for id := range g.Size {
			partitions = append(partitions, kiel.Partition{Topic: topic, ID: int32(id)})
		}
	}
	return members, partitions
}

// Texts returns the partitions as they stand in the group's set.
func (g Group) Texts() []string {
	texts := make([]string, len(g.partitions))
	for i, p := range g.partitions {
		texts[i] = p.String()
	}
	return texts
}

// change is a group before and after one member has joined, or left.
type change struct{ before, joined, left Group }

// changes returns a group of n members with random names, who joins and who leaves being random too; or with numbers, where both
// happen at the end.
func changes(seed uint64, n, partitions, size int, withNumbers bool) change {
	if withNumbers {
		g := NumberedGroup(n, partitions, size)
		return change{g, g.With(numbered(n + 1)), g.With(numbered(n - 1))}
	}
	r := rand.New(rand.NewPCG(seed, 1))
	names := make(map[string]bool)
	for len(names) <= n {
		names[fmt.Sprintf("host-%08x", r.Uint32())] = true
	}
	all := make([]string, 0, n+1)
	for name := range names {
		all = append(all, name)
	}
	slices.Sort(all)
	members := remove(all, r.IntN(n+1))
	g := newGroup(members, partitions, size)
	return change{g, g.With(all), g.With(remove(members, r.IntN(n)))}
}

func remove(names []string, i int) []string { return slices.Delete(slices.Clone(names), i, i+1) }
