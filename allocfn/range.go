package allocfn

import (
	"cmp"
	"slices"
)

// Range returns "range", Kafka's range assignor: for each topic the partitions
// in the order of their numbers are cut into one run per member that asks for
// the topic, the members in the order of their names; when t partitions over n
// members leave a rest, the first t mod n members get one more. So equal numbers
// of topics that have equally many partitions and the same askers meet at one
// member, which joins need, and the first members get the most when there are
// many small topics.
//
// Kafka orders members by their member or instance ids; here the name is the
// id. It takes one pass over the partitions, and a sort of those topics whose
// numbers have gaps.
func Range() Func {
	return Func{Name: "range", Assign: rangeAssign, harmless: rangeAssign}
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

// cut gives the partitions of a topic, in order, to n members: the first run to
// the first of the askers, or to member 0 if askers is nil, and so on.
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

// topics ranges over the topics of ps, as the bounds of their runs.
func topics(ps []Partition) func(yield func(from, to int) bool) {
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

// numeric returns the indices of the partitions of one topic in the order of
// their numbers. It uses the room of order, if that has enough.
func numeric(ps []Partition, order []int32) []int32 {
	order = slices.Grow(order[:0], len(ps))[:len(ps)]
	for i := range order {
		order[i] = -1
	}
	for i, p := range ps {
		if p.ID < 0 || int(p.ID) >= len(ps) || order[p.ID] != -1 {
			return sorted(ps, order)
		}
		order[p.ID] = int32(i) // no gaps so far: a partition's number is its rank
	}
	return order
}

func sorted(ps []Partition, order []int32) []int32 {
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(i, j int32) int { return cmp.Compare(ps[i].ID, ps[j].ID) })
	return order
}
