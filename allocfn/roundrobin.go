package allocfn

import "slices"

// RoundRobin returns "roundrobin", the default function of Python kiel: it assigns partition k of the set to member k mod n of
// the sorted members. With [Input.Places] set, k is the partition's place.
//
// Where members ask for different topics, the sorted members are a circle. Each partition is assigned to the next member on it
// that asks for its topic, beginning behind the member that got the partition before. A place without a partition passes over one
// member, whatever that member asks for.
//
// It takes the time of one pass over the partitions.
func RoundRobin() Func {
	return Func{Name: "roundrobin", Assign: roundRobin, readOnly: roundRobin}
}

func roundRobin(in Input) (Assignment, error) {
	n := int32(len(in.Members))
	if n == 0 {
		return Assignment{}, nil
	}
	if groups := groupByAskers(in); groups != nil {
		return roundCircle(in, groups), nil
	}
	a := make(Assignment, len(in.Partitions))
	if in.Places != nil {
		for i, place := range in.Places {
			a[i] = place % n
		}
		return a, nil
	}
	var m int32
	for i := range a {
		a[i] = m
		if m++; m == n {
			m = 0
		}
	}
	return a, nil
}

// roundCircle is RoundRobin for topics of several groups.
func roundCircle(in Input, groups []topicGroup) Assignment {
	groupOf := groupsOf(in.Partitions, groups)
	a := make(Assignment, len(in.Partitions))
	next, k := 0, 0 // the member that is next on the circle, and its index among the askers
	place, group := -1, int32(-1)
	for i, g := range groupOf {
		at := i
		if in.Places != nil {
			at = int(in.Places[i])
		}
		passed := at - place - 1
		place = at
		askers := groups[g].askers
		if passed > 0 || g != group {
			next = (next + passed) % len(in.Members)
			k, _ = slices.BinarySearch(askers, int32(next))
			group = g
		}
		if k == len(askers) {
			k = 0
		}
		a[i] = askers[k]
		next = int(askers[k]) + 1
		k++
	}
	return a
}
