package allocfn_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
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

var newVectors = flag.Bool("new-vectors", false, "write testdata/balanced.json, which breaks groups that run Balanced")

// TestBalancedVectors holds Balanced to results of long ago, on any machine. A vector that fails means that members of two
// versions own partitions twice: the function needs another name.
func TestBalancedVectors(t *testing.T) {
	const file = "balanced.json"
	if *newVectors {
		writeBalanced(t, "testdata/"+file)
	}
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

func writeBalanced(t *testing.T, path string) {
	t.Helper()
	names := []string{
		"a", "b", "host1:4711", "host10:4711", "host2:4711", "é", "😀", "A", "z z", "\"", strings.Repeat("x", 300),
	}
	topics := []string{"t", "orders", "a.b", "a-1", "a", "é"}
	var vectors []balancedVector
	for seed := range uint64(132) {
		r := rand.New(rand.NewPCG(seed, 5))
		v := balancedVector{Topics: make(map[string]int32)}
		heaviest := []int{0, 0, 4, 100, math.MaxInt32}[seed%5]
		for i := range 1 + r.IntN(14) {
			m := vectorMember{Name: fmt.Sprintf("host-%x:%d", r.Uint32N(1<<16), i)}
			if seed%4 == 0 && i < len(names) {
				m.Name = names[i]
			}
			if heaviest > 0 && r.IntN(3) > 0 {
				m.Weight = r.IntN(heaviest)
			}
			if seed%3 == 0 {
				m.Zone = []string{"", "a", "b", "c"}[r.IntN(4)]
			}
			v.Members = append(v.Members, m)
		}
		for range 1 + r.IntN(4) {
			v.Topics[topics[r.IntN(len(topics))]] = 1 + r.Int32N(40)
		}
		if seed%7 == 0 { // no remainder, and a large sure part
			v.Topics = map[string]int32{"t": int32(len(v.Members)) * (1 + r.Int32N(40))}
		}
		if seed%3 == 0 {
			v.Zones = make(map[string]string)
			for _, p := range v.input().Partitions {
				if r.IntN(4) > 0 {
					v.Zones[p.String()] = []string{"a", "b", "d"}[r.IntN(3)]
				}
			}
		}
		in := v.input()
		v.Owners = assign(t, in)
		if !slices.Equal(v.Owners, brute(in)) {
			t.Fatalf("seed %d: Balanced is not as it is defined", seed)
		}
		vectors = append(vectors, v)
	}
	for _, s := range [][2]int{{100, 999}, {100, 1_000}, {1_000, 10_000}, {1_000, 999}, {3, 10_000}, {2_000, 100_000}} {
		v := balancedVector{Many: s[0], Topics: map[string]int32{"t": int32(s[1] / 3), "topic": int32(s[1] - s[1]/3)}}
		v.Hash = hashOwners(assign(t, v.input()))
		vectors = append(vectors, v)
	}
	var text bytes.Buffer
	for i, v := range vectors {
		text.WriteString([]string{",\n", "[\n"}[max(0, 1-i)])
		line, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(line)
	}
	text.WriteString("\n]\n")
	if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// FuzzBalanced compares with the definition.
func FuzzBalanced(f *testing.F) {
	f.Add("a\nb\nc", "t\nu", uint16(17), uint64(0))
	f.Add("x\n", "", uint16(3), uint64(12))
	f.Fuzz(func(t *testing.T, members, topics string, partitions uint16, seed uint64) {
		var in allocfn.Input
		for _, name := range slices.Compact(slices.Sorted(strings.SplitSeq(members, "\n"))) {
			in.Members = append(in.Members, allocfn.Member{Name: name})
		}
		names := slices.Compact(slices.Sorted(strings.SplitSeq(topics, "\n")))
		for i := range partitions % 200 {
			in.Partitions = append(in.Partitions, kiel.Partition{Topic: names[int(i)%len(names)], ID: int32(i)})
		}
		kiel.SortPartitions(in.Partitions)
		if len(in.Members) > 50 || len(in.Partitions) == 0 {
			return
		}
		if seed%2 == 0 {
			in = weigh(seed, in)
		}
		got, err := allocfn.Call(allocfn.Balanced(), in)
		if err != nil {
			t.Fatal(err)
		}
		want := brute(in)
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}
