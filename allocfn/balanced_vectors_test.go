package allocfn_test

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
)

// balancedVector is a case of testdata/balanced.json: a group, and who gets what. Large groups are made by count and named by
// number.
type balancedVector struct {
	Members []vectorMember    // when there are few
	Many    int               `json:",omitempty"` // otherwise: "host-0" to "host-<n-1>"
	Topics  map[string]int32  // partitions 0 to n-1 of each
	Zones   map[string]string `json:",omitempty"` // of partitions, by their texts
	Owners  []int32           `json:",omitempty"` // in the order of the sorted partitions
	Hash    string            `json:",omitempty"` // of large results
}

type vectorMember struct {
	Name   string
	Weight int    `json:",omitempty"`
	Zone   string `json:",omitempty"`
}

func (v balancedVector) input() allocfn.Input {
	var in allocfn.Input
	for _, m := range v.Members {
		in.Members = append(in.Members, allocfn.Member{Name: m.Name, Weight: m.Weight, Zone: m.Zone})
	}
	for i := range v.Many {
		in.Members = append(in.Members, allocfn.Member{Name: fmt.Sprintf("host-%d", i)})
	}
	slices.SortFunc(in.Members, func(a, b allocfn.Member) int { return strings.Compare(a.Name, b.Name) })
	for topic, n := range v.Topics {
		for id := range n {
			in.Partitions = append(in.Partitions, kiel.Partition{Topic: topic, ID: id})
		}
	}
	kiel.SortPartitions(in.Partitions)
	for _, p := range in.Partitions {
		if zone, ok := v.Zones[p.String()]; ok {
			if in.Zones == nil {
				in.Zones = make(map[kiel.Partition]string)
			}
			in.Zones[p] = zone
		}
	}
	return in
}

func hashOwners(owners []int32) string {
	h := fnv.New64a()
	for _, o := range owners {
		fmt.Fprintln(h, o)
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// TestBalancedVectors holds Balanced to results of long ago, on any machine. A vector that fails means that members of two
// versions own partitions twice: the function needs another name.
func TestBalancedVectors(t *testing.T) {
	const file = "balanced.json"
	vectors := load[balancedVector](t, file)
	if len(vectors) < 100 {
		t.Errorf("only %d vectors", len(vectors))
	}
	for i, v := range vectors {
		in := v.input()
		got, err := allocfn.Call(allocfn.Balanced(), in)
		if err != nil {
			t.Errorf("vector %d: %v", i, err)
		}
		if v.Hash == "" && !slices.Equal(got, v.Owners) || v.Hash != "" && hashOwners(got) != v.Hash {
			t.Errorf("vector %d: %d members, %d partitions: got %v, want %v%s",
				i, len(in.Members), len(in.Partitions), got, v.Owners, v.Hash)
		}
	}
}
