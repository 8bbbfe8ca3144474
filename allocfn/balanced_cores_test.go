package allocfn

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kielgo/kiel"
)

// TestChooseConcurrently holds two goroutines to the choices of one.
func TestChooseConcurrently(t *testing.T) {
	for _, partitions := range []int{twoCoresFrom - 1, twoCoresFrom, twoCoresFrom + 17} {
		var in Input
		for m := range 300 {
			in.Members = append(in.Members, Member{Name: fmt.Sprintf("m%03d", m), Weight: 1 + m%3})
		}
		for p := range partitions {
			in.Partitions = append(in.Partitions, kiel.Partition{Topic: "t", ID: int32(p)})
		}
		one := balanceOf(in)
		one.chooseSome(0, partitions, &one.counts)
		two := balanceOf(in)
		two.choose()
		if !slices.Equal(one.choices, two.choices) || one.counts != two.counts {
			t.Errorf("%d partitions: other choices", partitions)
		}
	}
}

// A panic of the second goroutine is one of the call.
func TestChooseConcurrentlyPanics(t *testing.T) {
	b := &balance{keys: make([]uint64, twoCoresFrom), scale: newScale(nil), fields: newFields(pointsOf([]uint64{1, 2}), newScale(nil), nil, 1)}
	b.choices = make([]proposal, twoCoresFrom/2) // too few for the second half
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	b.choose()
}
