package allocfn_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
)

// Equal numbers of topics with equally many partitions meet, whatever other numbers there are; and topics that have the same
// numbers are spread evenly.
func TestCoPartitionedMeet(t *testing.T) {
	s := subject{f: allocfn.CoPartitioned()}
	rapid.Check(t, func(t *rapid.T) {
		in := groupOf(s.drawNames(t), drawTopics(t)...)
		if len(in.Members) == 0 {
			return
		}
		a := mustCall(t, s.f, in)
		ids := make(map[string][]int32)
		for _, p := range in.Partitions {
			ids[p.Topic] = append(ids[p.Topic], p.ID)
		}
		type unit struct {
			count int
			id    int32
		}
		owners := make(map[unit]int32)
		classes := make(map[int]map[int32]bool) // the numbers of each class
		for i, p := range in.Partitions {
			count := len(ids[p.Topic])
			u := unit{count, p.ID}
			if owner, ok := owners[u]; ok && owner != a[i] {
				t.Fatalf("partitions %d of topics with %d go to %d and %d", p.ID, count, owner, a[i])
			}
			owners[u] = a[i]
			if classes[count] == nil {
				classes[count] = make(map[int32]bool)
			}
			classes[count][p.ID] = true
		}
		units := make(map[int][]int)
		for u, owner := range owners {
			if units[u.count] == nil {
				units[u.count] = make([]int, len(in.Members))
			}
			units[u.count][owner]++
		}
		for count, loads := range units {
			if spread(loads) > 1 {
				t.Fatalf("units of the class of %d: %v", count, loads)
			}
		}
		for _, c := range mustMeasure(t, s.f, in, in).Topics {
			if c.After.Spread() > 1 && len(classes[len(ids[c.Topic])]) == len(ids[c.Topic]) {
				t.Fatalf("%+v", c)
			}
		}
	})
}

// Who gets one unit more differs from class to class.
func TestCoPartitionedSpreadsExtras(t *testing.T) {
	names := numberedNames("host", 10)
	var ps []kiel.Partition
	for count := 1; count <= 1000; count += 10 { // 100 topics, each with one partition too many
		ps = append(ps, topicOf("t"+string(rune('0'+count%7))+string(rune(0x4e00+count)), count)...)
	}
	in := groupOf(names, ps...)
	loads := make([]int, len(names))
	for _, m := range mustCall(t, allocfn.CoPartitioned(), in) {
		loads[m]++
	}
	least, most := slices.Min(loads), slices.Max(loads)
	t.Attr("spread", strconv.Itoa(most-least))
	if most-least > 15 || least == most { // 10 on average; the deviation is 3
		t.Errorf("loads %v", loads)
	}
}

func ExampleCoPartitioned() {
	in := allocfn.Input{Members: []allocfn.Member{{Name: "a"}, {Name: "b"}}}
	for _, topic := range []string{"orders", "payments"} {
		for id := range int32(3) {
			in.Partitions = append(in.Partitions, kiel.Partition{Topic: topic, ID: id})
		}
	}
	a, err := allocfn.Call(allocfn.CoPartitioned(), in)
	fmt.Println(allocfn.Mapping(in, a), err)
	// Output:
	// map[a:map[orders:[0 1] payments:[0 1]] b:map[orders:[2] payments:[2]]] <nil>
}
