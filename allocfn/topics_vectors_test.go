package allocfn_test

import (
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
