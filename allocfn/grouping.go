package allocfn

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kielgo/kiel"
)

// byTopic returns the indices of ps sorted by topic, byte by byte, and number. Where the partitions of a topic stand together, as
// they do in every set, it takes one pass and a sort of the topics.
func byTopic(ps []kiel.Partition) []int32 {
	type run struct{ from, to int }
	var runs []run
	for from, to := range topics(ps) {
		runs = append(runs, run{from, to})
	}
	slices.SortStableFunc(runs, func(a, b run) int { return strings.Compare(ps[a.from].Topic, ps[b.from].Topic) })
	order := make([]int32, 0, len(ps))
	for k, r := range runs {
		if k > 0 && ps[runs[k-1].from].Topic == ps[r.from].Topic { // a topic in two places
			return sortByTopic(ps)
		}
		n := len(order)
		order = order[:n+len(numeric(ps[r.from:r.to], order[n:]))] // it has room for all
		for i := range order[n:] {
			order[n+i] += int32(r.from)
		}
	}
	return order
}

func sortByTopic(ps []kiel.Partition) []int32 {
	order := make([]int32, len(ps))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(i, j int32) int {
		return cmp.Or(strings.Compare(ps[i].Topic, ps[j].Topic), cmp.Compare(ps[i].ID, ps[j].ID))
	})
	return order
}
