package allocfn

import (
	"cmp"
	"slices"

	"github.com/kielgo/kiel"
)

// CoPartitioned returns "copartitioned", for members that join topics by key: it assigns the partitions of the same id of all
// topics with equally many partitions to one member.
//
// Topics with equally many partitions in the input make a class. The partitions of one id in a class are a unit. Each class is
// divided by itself, so that the numbers of units of any two members differ by at most one. So do the numbers of partitions of
// each topic that has the same ids as the others of its class, such as 0 to their count less one. Ids that the topics of a class
// do not share make further units, and such a topic may be spread less evenly; a unit stays together all the same. A topic that
// gets more partitions changes its class, and most of its partitions move.
//
// Each class has hashes of its own, which decide what members get one unit more. So over many classes this evens out as by
// chance. But nothing evens
// out inside a class: in one of 100 topics with 3 partitions, 3 members get 100 partitions each, and if the topics have one
// partition, one member gets all.
//
// CoPartitioned assigns units as [Balanced] assigns partitions, and moves about as few when one member joins or leaves: of 1,000
// units on 10 members 1.22 times the least on a join, and 1.20 times on a leave; of 10,000 on 100 members 1.9 times. Tests hold
// it to at most 2.5·√U more than the least for a class with U units, with 2 to 31 members of up to 100 units each.
//
// It ignores the topics that members ask for.
//
// It takes about 0.2 µs for each unit, 30 ns for each partition, and 0.5 µs for each member in each class.
func CoPartitioned() Func {
	return Func{Name: "copartitioned", Assign: coPartitioned, readOnly: coPartitioned}
}

func coPartitioned(in Input) (Assignment, error) {
	if len(in.Members) == 0 {
		return Assignment{}, nil
	}
	names := make([]uint64, len(in.Members))
	for m := range names {
		names[m] = hashName(in.Members[m].Name)
	}
	a := make(Assignment, len(in.Partitions))
	for count, class := range classes(in.Partitions) {
		salt := fmix(uint64(count) * phi)
		numbers, unitOf := unitsOf(in.Partitions, class)
		keys := make([]uint64, len(numbers))
		for u, id := range numbers {
			keys[u] = fmix(salt + uint64(uint32(id))*phi)
		}
		salted := make([]uint64, len(names))
		for m, name := range names {
			salted[m] = fmix(name ^ salt)
		}
		g := newMatching(keys)
		g.admit(pointsOf(salted), evenQuotas(len(names), len(keys)), newScale(nil), zones{})
		g.match()
		for k, i := range class {
			a[i] = g.owner[unitOf[k]]
		}
	}
	return a, nil
}

// classes ranges over the classes of topics with equally many partitions, the partitions of each as indices of ps.
func classes(ps []kiel.Partition) func(yield func(count int, class []int32) bool) {
	return func(yield func(count int, class []int32) bool) {
		var byCount [][]int32 // one per topic
		order := byTopic(ps)
		for from, to := 0, 0; from < len(order); from = to {
			for to < len(order) && ps[order[to]].Topic == ps[order[from]].Topic {
				to++
			}
			byCount = append(byCount, order[from:to])
		}
		slices.SortStableFunc(byCount, func(a, b []int32) int { return cmp.Compare(len(a), len(b)) })
		for from, to := 0, 0; from < len(byCount); from = to {
			var class []int32
			count := len(byCount[from])
			for ; to < len(byCount) && len(byCount[to]) == count; to++ {
				class = append(class, byCount[to]...)
			}
			if !yield(count, class) {
				return
			}
		}
	}
}

// unitsOf returns the ids that the partitions of a class have, sorted, and the index in them of each partition's id.
func unitsOf(ps []kiel.Partition, class []int32) (numbers, unitOf []int32) {
	for _, i := range class {
		numbers = append(numbers, ps[i].ID)
	}
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	for _, i := range class {
		u, _ := slices.BinarySearch(numbers, ps[i].ID)
		unitOf = append(unitOf, int32(u))
	}
	return numbers, unitOf
}
