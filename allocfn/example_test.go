package allocfn_test

import (
	"fmt"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
)

func ExampleCall() {
	partitions, places, bad := kiel.ParsePartitions([]string{"orders:0", "orders:1", "orders:2", "refunds:0", "garbage"})
	in := allocfn.Input{
		Members:    []allocfn.Member{{Name: "host1:4711"}, {Name: "host2:815"}},
		Partitions: partitions,
		Places:     places,
	}
	a, err := allocfn.Call(allocfn.RoundRobin(), in)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(allocfn.Mapping(in, a))
	fmt.Println("to nobody:", bad)
	// Output:
	// map[host1:4711:map[orders:[0 2]] host2:815:map[orders:[1] refunds:[0]]]
	// to nobody: [garbage]
}

func ExampleFromKiel() {
	everythingToTheFirst := func(members, partitions []string) map[string]map[string][]int32 {
		topics := make(map[string][]int32)
		for _, text := range partitions {
			if p, err := kiel.ParsePartition(text); err == nil {
				topics[p.Topic] = append(topics[p.Topic], p.ID)
			}
		}
		return map[string]map[string][]int32{members[0]: topics}
	}
	f := allocfn.FromKiel("first-v1", everythingToTheFirst)

	in := allocfn.Input{
		Members:    []allocfn.Member{{Name: "a"}, {Name: "b"}},
		Partitions: []kiel.Partition{{Topic: "orders", ID: 0}, {Topic: "orders", ID: 1}},
	}
	a, err := allocfn.Call(f, in)
	fmt.Println(allocfn.Mapping(in, a), err)
	// Output:
	// map[a:map[orders:[0 1]]] <nil>
}

func ExampleRange() {
	in := allocfn.Input{
		Members:    []allocfn.Member{{Name: "a"}, {Name: "b"}},
		Partitions: []kiel.Partition{{Topic: "t0", ID: 0}, {Topic: "t0", ID: 1}, {Topic: "t0", ID: 2}, {Topic: "t1", ID: 0}, {Topic: "t1", ID: 1}, {Topic: "t1", ID: 2}},
	}
	a, err := allocfn.Call(allocfn.Range(), in)
	fmt.Println(allocfn.Mapping(in, a), err)
	// Output:
	// map[a:map[t0:[0 1] t1:[0 1]] b:map[t0:[2] t1:[2]]] <nil>
}

func ExampleOrdinal() {
	var in allocfn.Input
	for id := range int32(6) {
		in.Partitions = append(in.Partitions, kiel.Partition{Topic: "t", ID: id})
	}
	for i := range 4 {
		in.Members = append(in.Members, allocfn.Member{Name: fmt.Sprintf("web-%d", i)})
		a, err := allocfn.Call(allocfn.Ordinal(), in)
		fmt.Println(a, err)
	}
	// Output:
	// [0 0 0 0 0 0] <nil>
	// [1 0 0 1 1 0] <nil>
	// [1 2 0 1 2 0] <nil>
	// [1 3 0 1 2 0] <nil>
}
