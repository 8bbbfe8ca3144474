package allocfn_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/kielgo/kiel/allocfn"
)

// TestTopicBalancedWeightVectors holds TopicBalanced to what it gave for members of weights, and of weights and zones, when these
// were new. A vector that changes is a breaking change, see owned.
func TestTopicBalancedWeightVectors(t *testing.T) {
	const file = "topicbalanced_weights.json"
	if _, err := os.Stat("testdata/" + file); err != nil && *writeVectors {
		writeTopicBalanced(t, "testdata/"+file)
	}
	weights, zones := 0, 0
	for i, v := range load[balancedVector](t, file) {
		in := v.input()
		got := mustCall(t, allocfn.TopicBalanced(), in)
		if v.Hash == "" && !slices.Equal(got, v.Owners) || v.Hash != "" && hashOwners(got) != v.Hash {
			t.Errorf("vector %d: got %v %s, want %v %s", i, got, hashOwners(got), v.Owners, v.Hash)
		}
		checkEven(t, in, got)
		if v.Zones == nil {
			weights++
		} else {
			zones++
		}
	}
	if weights < 40 || zones < 40 {
		t.Errorf("only %d vectors with weights, %d with zones too", weights, zones)
	}
}

func writeTopicBalanced(t *testing.T, path string) {
	t.Helper()
	var text bytes.Buffer
	for seed := range uint64(96) {
		r := rand.New(rand.NewPCG(seed, 6))
		v := balancedVector{Topics: make(map[string]int32)}
		heaviest := []int{2, 3, 10, 100, math.MaxInt32}[seed%5]
		members, most := 2+r.IntN(12), 40
		if seed >= 88 { // large ones, which cross all paths
			members, most = []int{40, 100, 257, 400}[seed%4], 300
		}
		for i := range members {
			m := vectorMember{Name: fmt.Sprintf("host-%x:%d", r.Uint32N(1<<16), i)}
			if i < 4 && seed%4 == 0 {
				m.Name = []string{"é", "😀", "z z", "a"}[i]
			}
			if r.IntN(4) > 0 {
				m.Weight = 1 + r.IntN(heaviest)
			}
			if seed%2 == 0 {
				m.Zone = []string{"", "a", "b", "c"}[r.IntN(4)]
			}
			v.Members = append(v.Members, m)
		}
		v.Members[0].Weight = heaviest // so that not all are equal
		for k := range 1 + r.IntN(5) {
			v.Topics[[]string{"t", "orders", "a.b", "a-1", "é"}[k]] = 1 + r.Int32N(int32(most))
		}
		if seed%2 == 0 {
			v.Zones = make(map[string]string)
			for _, p := range v.input().Partitions {
				if r.IntN(4) > 0 {
					v.Zones[p.String()] = []string{"a", "b", "d"}[r.IntN(3)]
				}
			}
		}
		v.Owners = mustCall(t, allocfn.TopicBalanced(), v.input())
		if len(v.Owners) > 150 {
			v.Hash, v.Owners = hashOwners(v.Owners), nil
		}
		line, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString([]string{",\n", "[\n"}[max(0, 1-int(seed))])
		text.Write(line)
	}
	text.WriteString("\n]\n")
	if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
