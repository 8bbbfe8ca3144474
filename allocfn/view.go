package allocfn

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/kielgo/kiel"
)

// View shows an assignment by member and by topic. Its slices hold indices in Input.Partitions and must not be changed. Any
// number of goroutines may use a View at once.
//
// [Mapping] returns an assignment in the shape of kiel.
type View struct {
	in    Input
	owner Assignment
	start []int32 // member m has list[start[m]:start[m+1]]
	list  []int32
	order []int32 // the partitions by topic and id
}

// NewView returns a view of in and a, which it makes in one pass. The view keeps both; they must not change while it is in use.
// An assignment that [Check] refuses is an error.
func NewView(in Input, a Assignment) (*View, error) {
	if err := Check(in, a); err != nil {
		return nil, err
	}
	start, list := byMember(a, len(in.Members))
	return &View{in: in, owner: a, start: start, list: list, order: byTopic(in.Partitions)}, nil
}

// byMember returns the indices of the first member's partitions, growing, then those of the second, and so on: member m has
// list[start[m]:start[m+1]].
func byMember(a Assignment, members int) (start, list []int32) {
	start, list = make([]int32, members+1), make([]int32, len(a))
	for _, m := range a {
		start[m]++
	}
	end := int32(0)
	for m, count := range start {
		end += count
		start[m] = end
	}
	for i, m := range slices.Backward(a) { // from the end, so that each member's indices grow
		start[m]--
		list[start[m]] = int32(i)
	}
	return start, list
}

// Of returns the indices of a member's partitions, growing; none if there is no such member.
func (v *View) Of(member int) []int32 {
	if member < 0 || member >= len(v.in.Members) {
		return nil
	}
	return slices.Clip(v.list[v.start[member]:v.start[member+1]])
}

// OfName is Of for the member of this name.
func (v *View) OfName(name string) []int32 {
	m, ok := slices.BinarySearchFunc(v.in.Members, name, func(m Member, name string) int { return strings.Compare(m.Name, name) })
	if !ok {
		return nil
	}
	return v.Of(m)
}

// Topics ranges over a member's partitions topic by topic, in the order of Input.Partitions.
func (v *View) Topics(member int) iter.Seq2[string, []int32] {
	return func(yield func(topic string, indices []int32) bool) {
		mine := v.Of(member)
		for len(mine) > 0 {
			topic := v.in.Partitions[mine[0]].Topic
			n := 1
			for n < len(mine) && v.in.Partitions[mine[n]].Topic == topic {
				n++
			}
			if !yield(topic, slices.Clip(mine[:n])) {
				return
			}
			mine = mine[n:]
		}
	}
}

// Topic returns the indices of a topic's partitions in the order of their numbers.
func (v *View) Topic(topic string) []int32 {
	from, _ := slices.BinarySearchFunc(v.order, topic, func(i int32, topic string) int { return strings.Compare(v.in.Partitions[i].Topic, topic) })
	rest := v.order[from:]
	n, _ := slices.BinarySearchFunc(rest, topic, func(i int32, topic string) int {
		if v.in.Partitions[i].Topic == topic {
			return -1 // the search is for the first of the next topic
		}
		return 1
	})
	return slices.Clip(rest[:n])
}

// MemberOf returns the index of the member that has p, and whether there is one.
func (v *View) MemberOf(p kiel.Partition) (member int, ok bool) {
	k, ok := slices.BinarySearchFunc(v.order, p, func(i int32, p kiel.Partition) int {
		q := v.in.Partitions[i]
		return cmp.Or(strings.Compare(q.Topic, p.Topic), cmp.Compare(q.ID, p.ID))
	})
	if !ok || len(v.owner) == 0 {
		return -1, false
	}
	return int(v.owner[v.order[k]]), true
}
