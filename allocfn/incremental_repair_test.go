package allocfn

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestEvaluatorRepairs checks that joins and leaves are repaired, and not
// computed anew, nearly always.
func TestEvaluatorRepairs(t *testing.T) {
	group := func(n int) Input {
		in := Input{}
		for i := range n {
			in.Members = append(in.Members, Member{Name: fmt.Sprintf("m%d", i)})
		}
		slices.SortFunc(in.Members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
		return in
	}
	in := Input{}
	for id := range int32(6_000) {
		in.Partitions = append(in.Partitions, Partition{Topic: "t", ID: id})
	}
	Sort(in.Partitions)
	var e Evaluator
	in.Members = group(100).Members
	if _, err := e.Assign(in); err != nil {
		t.Fatal(err)
	}
	repaired, anew := 0, 0
	for _, n := range []int{101, 102, 101, 100, 99, 98, 99, 100, 101, 100, 99, 100, 120, 119, 120, 118} {
		in.Members = group(n).Members
		want, err := balanced(in)
		if err != nil {
			t.Fatal(err)
		}
		got := e.repair(in)
		if got == nil {
			anew++
			got, err = e.begin(in)
		} else {
			repaired++
		}
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%d members: differs, %v", n, err)
		}
	}
	if repaired < 13 || anew == 0 {
		t.Errorf("repaired %d changes, began anew for %d", repaired, anew)
	}
	t.Attr("repaired", fmt.Sprint(repaired))
}

// TestEvaluatorSeesThatItGrantedTooMuch lies about what members got the last
// time, so that they are granted more than they may have.
func TestEvaluatorSeesThatItGrantedTooMuch(t *testing.T) {
	in := Input{}
	for i := range 50 {
		in.Members = append(in.Members, Member{Name: fmt.Sprintf("m%02d", i)})
	}
	for id := range int32(2_000) {
		in.Partitions = append(in.Partitions, Partition{Topic: "t", ID: 10_000 + id})
	}
	var e Evaluator
	want, err := e.Assign(in)
	if err != nil {
		t.Fatal(err)
	}
	for i := range e.chairs {
		e.chairs[i].arrivals = nil
	}
	if a := e.repair(in); a != nil && !slices.Equal(a, want) {
		t.Error("took a wrong result for right")
	} else if a != nil {
		t.Error("saw no grant that was too much")
	}
	if got, err := e.Assign(in); err != nil || !slices.Equal(got, want) {
		t.Errorf("differs afterwards, %v", err)
	}
}
