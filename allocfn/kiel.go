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
	var begins []int
	for m := range in.Members {
		mine := list[start[m]:start[m+1]]
		if len(mine) == 0 {
			continue
		}
		var ids []int32
		ids, begins = idsByTopic(in.Partitions, mine, begins)
		topics := make(map[string][]int32, len(begins))
		end := len(ids)
		for _, begin := range slices.Backward(begins) {
			topic := in.Partitions[mine[begin]].Topic
			part := ids[begin:end:end]
			if !together {
				part = append(part, topics[topic]...)
			}
			topics[topic] = part
			end = begin
		}
		mapping[in.Members[m].Name] = topics
	}
	return mapping
}

// idsByTopic returns the numbers of some partitions, and where another topic
// begins in them. It uses the room of begins, if that has enough.
func idsByTopic(ps []Partition, indices []int32, begins []int) (ids []int32, _ []int) {
	ids, begins = make([]int32, len(indices)), begins[:0]
	topic := ""
	for k, i := range indices {
		p := &ps[i]
		ids[k] = p.ID
		if k == 0 || p.Topic != topic {
			topic = p.Topic
			begins = append(begins, k)
		}
	}
	return ids, begins
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
