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

// topicsVector is a case of testdata/topics.json: a group whose members ask for different topics, and the owners of its
// partitions by the name of the function.
type topicsVector struct {
	balancedVector
	Lists  [][]string       // of topics, of each member
	Owned  map[string]owned // only owners or their sum
	Places []int32          `json:",omitempty"`
}

func (v topicsVector) input() allocfn.Input {
	in := v.balancedVector.input()
	if v.Many > 0 {
		for k := range in.Members {
			in.Members[k].Topics = v.Lists[k%len(v.Lists)]
		}
		return in
	}
	for k, m := range v.Members {
		member(in, m.Name).Topics = v.Lists[k]
	}
	in.Places = v.Places
	return in
}

// TestTopicsVectors holds the functions that look at topics to what they gave for members that ask for different ones, when this
// was new. A vector that changes is a breaking change, see owned.
func TestTopicsVectors(t *testing.T) {
	const file = "topics.json"
	if _, err := os.Stat("testdata/" + file); err != nil && *writeVectors {
		writeTopicsVectors(t, "testdata/"+file)
	}
	vectors := load[topicsVector](t, file)
	if len(vectors) < 80 {
		t.Errorf("only %d vectors", len(vectors))
	}
	for i, v := range vectors {
		in := v.input()
		if len(v.Owned) != len(topicFuncs()) {
			t.Errorf("vector %d has %d functions", i, len(v.Owned))
		}
		for _, f := range topicFuncs() {
			var got owned
			a := mustCall(t, f, in)
			got.put(a)
			if want := v.Owned[f.Name]; got.Sum != want.Sum || !slices.Equal(got.Owners, want.Owners) {
				t.Errorf("vector %d, %s: got %v %s, want %v %s", i, f.Name, got.Owners, got.Sum, want.Owners, want.Sum)
			}
			checkTopicPlan(t, f, in, a)
		}
	}
}

func writeTopicsVectors(t *testing.T, path string) {
	t.Helper()
	var text bytes.Buffer
	for seed := range uint64(96) {
		v := newTopicsVector(seed)
		v.Owned = make(map[string]owned)
		for _, f := range topicFuncs() {
			var o owned
			o.put(mustCall(t, f, v.input()))
			v.Owned[f.Name] = o
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

// newTopicsVector makes a group from a seed: with equal weights, or others, with zones, with places that are no partition, and at
// last large ones.
func newTopicsVector(seed uint64) topicsVector {
	r := rand.New(rand.NewPCG(seed, 20))
	v := topicsVector{balancedVector: balancedVector{Topics: make(map[string]int32)}}
	topics := []string{"orders", "a.b", "a-1", "a", "é", "t", "orders-dlq"}[:2+r.IntN(6)]
	members, most := 2+r.IntN(9), 16
	if seed >= 92 {
		v.Many, most = []int{40, 100, 257, 400}[seed%4], 500
	}
	for _, topic := range topics {
		v.Topics[topic] = 1 + r.Int32N(int32(most))
	}
	heaviest := []int{0, 0, 3, 100, math.MaxInt32}[seed%5]
	for k := range members {
		m := vectorMember{Name: fmt.Sprintf("host-%x:%d", r.Uint32N(1<<16), k)}
		if k < 4 && seed%4 == 0 {
			m.Name = []string{"é", "😀", "z z", "A"}[k]
		}
		if heaviest > 0 && r.IntN(4) > 0 {
			m.Weight = 1 + r.IntN(heaviest)
		}
		if seed%3 == 0 {
			m.Zone = []string{"", "a", "b"}[r.IntN(3)]
		}
		list := slices.DeleteFunc(append(slices.Clone(topics), "not-in-the-set"), func(string) bool { return r.IntN(2) == 0 })
		r.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
		if k > 0 && r.IntN(3) > 0 {
			list = v.Lists[r.IntN(k)]
		}
		v.Lists = append(v.Lists, list)
		if v.Many == 0 {
			v.Members = append(v.Members, m)
		}
	}
	if seed%3 == 0 {
		v.Zones = make(map[string]string)
		for _, p := range v.balancedVector.input().Partitions {
			if r.IntN(4) > 0 {
				v.Zones[p.String()] = []string{"a", "b", "c"}[r.IntN(3)]
			}
		}
	}
	if seed%6 == 1 && v.Many == 0 {
		place := int32(0)
		for range v.balancedVector.input().Partitions {
			place += 1 + r.Int32N(5)/4
			v.Places = append(v.Places, place)
		}
	}
	return v
}
