package suite

import (
	"slices"

	"github.com/kielgo/kiel/allocfn"
)

// ranges returns an allocation function that divides each topic by itself among the members that ask for it, in ranges. It is
// what sarama's groups do unless told otherwise, and what the tests expect; ours divide so that the totals are equal.
func ranges() allocfn.Func {
	return allocfn.Func{Name: "ranges", Assign: func(in allocfn.Input) (allocfn.Assignment, error) {
		owners := make(allocfn.Assignment, len(in.Partitions))
		for from := 0; from < len(in.Partitions); {
			topic, to := in.Partitions[from].Topic, from
			for to < len(in.Partitions) && in.Partitions[to].Topic == topic {
				to++
			}
			asking := askers(in.Members, topic)
			for i := range to - from {
				owners[from+i] = asking[i*len(asking)/(to-from)]
			}
			from = to
		}
		return owners, nil
	}}
}

// askers returns which members ask for a topic. There are some: a topic for which nobody asks is not divided.
func askers(members []allocfn.Member, topic string) (asking []int32) {
	for i, m := range members {
		if slices.Contains(m.Topics, topic) {
			asking = append(asking, int32(i))
		}
	}
	return asking
}
