package allocfn

import (
	"fmt"
	"maps"
	"slices"
)

// Mapping returns a in the shape of kiel's functions: member, topic, ids. The
// ids of a topic are in the order of in.Partitions. A member that owns nothing
// is absent, as in kiel. The maps are the caller's. a must have passed [Check].
func Mapping(in Input, a Assignment) map[string]map[string][]int32 {
	start, list := byMember(a, len(in.Members))
	together := topicsTogether(in.Partitions)
	mapping := make(map[string]map[string][]int32, min(len(in.Members), len(a)))
	for m := range in.Members {
		if mine := list[start[m]:start[m+1]]; len(mine) > 0 {
			mapping[in.Members[m].Name] = byTopicOf(in.Partitions, mine, together)
		}
	}
	return mapping
}

// byTopicOf returns the numbers of some partitions by their topics. It looks up
// each topic once, if the partitions of each topic are known to stand together.
func byTopicOf(ps []Partition, indices []int32, together bool) map[string][]int32 {
	ids := make([]int32, len(indices))
	count, last := 0, ""
	for k, i := range indices {
		p := &ps[i]
		ids[k] = p.ID
		if k == 0 || p.Topic != last {
			count, last = count+1, p.Topic
		}
	}
	topics := make(map[string][]int32, count)
	for from, to := 0, 0; from < len(indices); from = to {
		topic := ps[indices[from]].Topic
		for to < len(indices) && ps[indices[to]].Topic == topic {
			to++
		}
		mine := ids[from:to:to]
		if !together {
			mine = append(topics[topic], mine...)
		}
		topics[topic] = mine
	}
	return topics
}

// topicsTogether reports whether the partitions of each topic stand together, as
// far as the order of the topics shows it: they do in every set but an odd one.
func topicsTogether(ps []Partition) bool {
	last := -1
	for from := range topics(ps) {
		if last >= 0 && Compare(Partition{ps[last].Topic, 0}, Partition{ps[from].Topic, 0}) > 0 {
			return false
		}
		last = from
	}
	return true
}

// FromKiel makes a [Func] of a function in kiel's shape: it is given the names
// of the members and the texts "topic:id" of the partitions, both sorted, and
// returns member, topic, ids. A member may be absent from the result, and the
// order of ids does not matter. A result that leaves a partition out, gives one
// away twice, or names a member or partition that it was not given is an error
// that wraps [ErrForgotten], [ErrDoubled] or [ErrStranger] and names it.
//
// f gets slices of its own, and must be pure like every Func. A nil f makes a
// Func that Validate refuses.
func FromKiel(name string, f func(members, partitions []string) map[string]map[string][]int32) Func {
	if f == nil {
		return Func{Name: name}
	}
	return Func{Name: name, Assign: func(in Input) (Assignment, error) {
		members := make([]string, len(in.Members))
		for i, m := range in.Members {
			members[i] = m.Name
		}
		partitions := make([]string, len(in.Partitions))
		for i, p := range in.Partitions {
			partitions[i] = p.String()
		}
		return fromMapping(in, f(members, partitions))
	}}
}

// fromMapping is the reverse of Mapping. It goes through the result in order,
// so that of several faults every process reports the same.
func fromMapping(in Input, mapping map[string]map[string][]int32) (Assignment, error) {
	index := make(map[Partition]int, len(in.Partitions))
	a := make(Assignment, len(in.Partitions))
	for i, p := range in.Partitions {
		index[p] = i
		a[i] = -1
	}
	members := make(map[string]int32, len(in.Members))
	for i, m := range in.Members {
		members[m.Name] = int32(i)
	}
	for _, name := range slices.Sorted(maps.Keys(mapping)) {
		m, ok := members[name]
		if !ok {
			return nil, fmt.Errorf("%w: member %s is not in the group", ErrStranger, quote(name))
		}
		topics := mapping[name]
		for _, topic := range slices.Sorted(maps.Keys(topics)) {
			for _, id := range topics[topic] {
				p := Partition{Topic: topic, ID: id}
				i, ok := index[p]
				switch {
				case !ok:
					return nil, fmt.Errorf("%w: partition %s, given to %s, is not in the set", ErrStranger, quote(p.String()), quote(name))
				case a[i] != -1:
					return nil, fmt.Errorf("%w: %s, to %s and to %s", ErrDoubled, quote(p.String()), quote(in.Members[a[i]].Name), quote(name))
				}
				a[i] = m
			}
		}
	}
	if err := Check(in, a); err != nil {
		return nil, err
	}
	return a, nil
}
