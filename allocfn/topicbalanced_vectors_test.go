package allocfn_test

import (
	"slices"
	"testing"

	"github.com/kielgo/kiel/allocfn"
)

// TestTopicBalancedWeightVectors holds TopicBalanced to what it gave for members of weights, and of weights and zones, when these
// were new. A vector that changes is a breaking change, see owned.
func TestTopicBalancedWeightVectors(t *testing.T) {
	const file = "topicbalanced_weights.json"
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
