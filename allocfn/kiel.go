package allocfn

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kielgo/kiel"
)

// Mapping returns a in the shape of kiel's functions: member, topic, ids. The ids of a topic are in the order of in.Partitions. A
// member that owns nothing is absent, as in kiel. The caller may change the maps. a must have passed [Check].
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

// idsByTopic returns the ids of some partitions, and the places in them at which another topic begins. It reuses the memory of
// begins.
func idsByTopic(ps []kiel.Partition, indices []int32, begins []int) (ids []int32, _ []int) {
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

// topicsTogether reports whether the partitions of each topic stand together. It returns false, too, if the topics are not in the
// order of Partition.Compare, which happens only in sets with items that String would write differently.
func topicsTogether(ps []kiel.Partition) bool {
	last := -1
	for from := range topics(ps) {
		if last >= 0 && (kiel.Partition{Topic: ps[last].Topic}).Compare(kiel.Partition{Topic: ps[from].Topic}) > 0 {
			return false
		}
		last = from
	}
	return true
}

// FromKiel makes a [Func] of a function in Python kiel's shape. f gets the names of the members and the texts "topic:id" of the
// partitions, both sorted, and returns member, topic, ids. A member may be absent from the result, and the order of ids does not
// matter. A result that leaves a partition out, assigns one twice, or names a member or a partition that f did not get is an
// error that names it and wraps [ErrUnassigned], [ErrAssignedTwice] or [ErrUnknownTarget].
//
// f may change its slices, and must be pure like every Func. A nil f makes a Func that Validate refuses.
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

// FromMapping is the reverse of [Mapping], for a [Func] that adapts a function of the shape that kiel's and sarama's have:
// member, topic, ids. A member may be absent, and the order of ids does not matter. A mapping that leaves a partition of in out,
// assigns one twice, or names a member or a partition that in does not have is an error that names it and wraps [ErrUnassigned],
// [ErrAssignedTwice] or [ErrUnknownTarget]. Of several faults every process reports the same one.
func FromMapping(in Input, mapping map[string]map[string][]int32) (Assignment, error) {
	a, err := fromMapping(in, mapping)
	return a, named(err)
}

// fromMapping is FromMapping without the package's name. It checks the mapping in sorted order, so that every process reports the
// same of several faults.
func fromMapping(in Input, mapping map[string]map[string][]int32) (Assignment, error) {
	index := make(map[kiel.Partition]int, len(in.Partitions))
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
			return nil, fmt.Errorf("%w: member %s is not in the group", ErrUnknownTarget, quote(name))
		}
		topics := mapping[name]
		for _, topic := range slices.Sorted(maps.Keys(topics)) {
			for _, id := range topics[topic] {
				p := kiel.Partition{Topic: topic, ID: id}
				i, ok := index[p]
				switch {
				case !ok:
					return nil, fmt.Errorf("%w: partition %s, assigned to %s, is not in the set", ErrUnknownTarget, quote(p.String()), quote(name))
				case a[i] != -1:
					return nil, fmt.Errorf("%w: %s, to %s and to %s", ErrAssignedTwice, quote(p.String()), quote(in.Members[a[i]].Name), quote(name))
				}
				a[i] = m
			}
		}
	}
	if err := check(in, a); err != nil {
		return nil, err
	}
	return a, nil
}
