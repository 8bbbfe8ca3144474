package allocfn

import (
	"cmp"
	"slices"

	"github.com/kielgo/kiel"
)

// Range returns "range", Kafka's range assignor. It cuts the partitions of each topic, in the order of their ids, into one run
// per member that asks for the topic, in the order of the members' names. If n members do not divide t partitions, the first t
// mod n members get one more. So one member gets the partitions of the same id of all topics with equally many partitions and the
// same askers, as joins need; and the first members get the most when there are many small topics.
//
// Kafka orders members by their member or instance ids; here the name is the id. Range takes one pass over the partitions, and
// sorts the topics whose ids have gaps.
func Range() Func {
	return Func{Name: "range", Assign: rangeAssign, readOnly: rangeAssign}
}

func rangeAssign(in Input) (Assignment, error) {
	if len(in.Members) == 0 {
		return Assignment{}, nil
	}
	a := make(Assignment, len(in.Partitions))
	var order []int32
	groups := groupByAskers(in)
	if groups == nil {
		for from, to := range topics(in.Partitions) {
			order = numeric(in.Partitions[from:to], order)
			cut(a[from:to], order, len(in.Members), nil)
		}
		return a, nil
	}
	groupOf := groupsOf(in.Partitions, groups)
	for from, to := range topics(in.Partitions) {
		askers := groups[groupOf[from]].askers
		order = numeric(in.Partitions[from:to], order)
		cut(a[from:to], order, len(askers), askers)
	}
	return a, nil
}

// cut assigns the partitions of a topic, in order, to n members: the first run to the first of the askers, or to member 0 if
// askers is nil, and so on.
func cut(a Assignment, order []int32, n int, askers []int32) {
	next := 0
	for k := 0; next < len(order); k++ {
		m := int32(k)
		if askers != nil {
			m = askers[k]
		}
		for range runOf(k, n, len(order)) {
			a[order[next]] = m
			next++
		}
	}
}

// runOf returns how many of a topic's t partitions member m of n gets.
func runOf(m, n, t int) int {
	if m < t%n {
		return t/n + 1
	}
	return t / n
}

// topics ranges over the runs of partitions of one topic in ps, by their bounds.
func topics(ps []kiel.Partition) func(yield func(from, to int) bool) {
	return func(yield func(from, to int) bool) {
		for from, to := 0, 0; from < len(ps); from = to {
			for to < len(ps) && ps[to].Topic == ps[from].Topic {
				to++
			}
			if !yield(from, to) {
				return
			}
		}
	}
}

// numeric returns the indices of the partitions of one topic in the order of their ids. It reuses the memory of order.
func numeric(ps []kiel.Partition, order []int32) []int32 {
	order = slices.Grow(order[:0], len(ps))[:len(ps)]
	for i := range order {
		order[i] = -1
	}
	for i, p := range ps {
		if p.ID < 0 || int(p.ID) >= len(ps) || order[p.ID] != -1 {
			return sorted(ps, order)
		}
		order[p.ID] = int32(i) // no gaps so far: a partition's id is its rank
	}
	return order
}

func sorted(ps []kiel.Partition, order []int32) []int32 {
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(i, j int32) int { return cmp.Compare(ps[i].ID, ps[j].ID) })
	return order
}
