package allocfn_test

import (
	"fmt"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
)

func ExampleMeasure_functions() {
	var items []string // yours: what is in the znode /kiel/groups/G/partitions
	for id := range 96 {
		items = append(items, fmt.Sprintf("orders:%d", id), fmt.Sprintf("refunds:%d", id/8))
	}
	partitions, places, _ := kiel.ParsePartitions(items)
	plan := func(f allocfn.Func, names ...string) allocfn.Plan {
		in := allocfn.Input{Partitions: partitions, Places: places}
		for _, name := range names { // sorted
			in.Members = append(in.Members, allocfn.Member{Name: name})
		}
		a, err := allocfn.Call(f, in)
		if err != nil {
			panic(err)
		}
		return allocfn.Plan{Input: in, Assignment: a}
	}
	for _, f := range []allocfn.Func{allocfn.RoundRobin(), allocfn.Balanced(), allocfn.TopicBalanced()} {
		m, err := allocfn.Measure(plan(f, "a", "b", "c", "d"), plan(f, "a", "b", "bb", "c", "d"))
		fmt.Println(f.Name, m, err)
		for _, t := range m.Topics {
			fmt.Println(" ", t.Topic, "from", t.After.Least, "to", t.After.Most, "per member")
		}
	}
	// Output:
	// roundrobin 86 of 108 partitions moved (at least 21), members 4 to 5, spread 0 to 1 <nil>
	//   orders from 19 to 20 per member
	//   refunds from 2 to 3 per member
	// balanced 25 of 108 partitions moved (at least 21), members 4 to 5, spread 0 to 1 <nil>
	//   orders from 17 to 21 per member
	//   refunds from 0 to 5 per member
	// topicbalanced 25 of 108 partitions moved (at least 21), members 4 to 5, spread 0 to 1 <nil>
	//   orders from 19 to 20 per member
	//   refunds from 2 to 3 per member
}
