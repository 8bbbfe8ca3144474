package allocfn_test

import (
	"fmt"
	"testing"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
)

// inZones puts members and partitions into zones by turns.
func inZones(in allocfn.Input, members, partitions int) allocfn.Input {
	in.Zones = make(map[kiel.Partition]string)
	for m := range in.Members {
		in.Members[m].Zone = fmt.Sprint(m % members)
	}
	for _, p := range in.Partitions {
		in.Zones[p] = fmt.Sprint(int(p.ID) % partitions)
	}
	return in
}

// Where every zone has as many partitions of each topic as its members take, all stay in their zones.
func TestTopicBalancedStaysInZone(t *testing.T) {
	in := inZones(groupOf(numberedNames("host", 12), append(topicOf("t", 36), append(topicOf("u", 60), topicOf("v", 12)...)...)...), 3, 3)
	for i, m := range mustCall(t, allocfn.TopicBalanced(), in) {
		if p := in.Partitions[i]; in.Members[m].Zone != in.Zones[p] {
			t.Errorf("%v of zone %s is with %v", p, in.Zones[p], in.Members[m])
		}
	}
	// Nobody is in zone 2: who is elsewhere takes its partitions, evenly.
	in = inZones(in, 2, 3)
	strangers := 0
	for i, m := range mustCall(t, allocfn.TopicBalanced(), in) {
		if zone := in.Zones[in.Partitions[i]]; zone != "2" && in.Members[m].Zone != zone {
			strangers++
		}
	}
	if strangers > 0 {
		t.Errorf("%d partitions are in another zone for no reason", strangers)
	}
}

// Vectors with zones: the owners, or a sum where these are many.
func TestTopicBalancedZoneVectors(t *testing.T) {
	for i, want := range []string{
		"[3 1 2 2 4 3 1 0 4 0 1 0 1 2 3 3 4]",
		"[3 1 2 4 3 1 11 7 0 10 5 4 8 0 7 8 5 6 2 9 1 11 9 6 10 3 10 5 8 9 0 4 11 1 6 7 0 4 2 8 6 10]",
		"[]6eb7ad998e5b7fa4",
		"[]dc35f3ca1dae0ab7",
	} {
		n := []int{5, 12, 100, 300}[i]
		ps := append(topicOf("t", 2*n+1), append(topicOf("u", n-1), topicOf("é", n/2)...)...)
		var v owned
		v.put(mustCall(t, allocfn.TopicBalanced(), inZones(groupOf(numberedNames("host", n), ps...), 3, 4)))
		if got := fmt.Sprint(v.Owners, v.Sum); got != want {
			t.Errorf("%d members: got %s, want %s", n, got, want)
		}
	}
}

func ExampleTopicBalanced() {
	in := allocfn.Input{Members: []allocfn.Member{{Name: "a"}, {Name: "b"}}}
	for _, topic := range []string{"orders", "payments", "refunds"} {
		for id := range int32(3) {
			in.Partitions = append(in.Partitions, kiel.Partition{Topic: topic, ID: id})
		}
	}
	a, err := allocfn.Call(allocfn.TopicBalanced(), in)
	fmt.Println(allocfn.Mapping(in, a), err)
	// Output:
	// map[a:map[orders:[2] payments:[1 2] refunds:[0 2]] b:map[orders:[0 1] payments:[0] refunds:[1]]] <nil>
}
