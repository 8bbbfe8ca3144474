package allocfn

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/kielgo/kiel"
)

// TestValidateOrder compares Validate with the order of texts, also where a number follows the one before.
func TestValidateOrder(t *testing.T) {
	number := rapid.OneOf(rapid.Int32Range(0, 120), rapid.Int32(), rapid.SampledFrom([]int32{
		9, 10, 99, 1e9 - 1, math.MaxInt32 - 1, math.MaxInt32, -1, -10, -11, -12, math.MinInt32,
	}))
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		if rapid.Bool().Draw(t, "next") {
			b = a + 1
		}
		ps := []kiel.Partition{{Topic: "t", ID: a}, {Topic: "t", ID: b}}
		want := ps[0].Compare(ps[1]) < 0
		if err := (Input{Partitions: ps}).Validate(); (err == nil) != want {
			t.Fatalf("%d, %d: %v", a, b, err)
		}
	})
}

// TestOwnFunctionsNeedNoCopy checks that only a function of this package is shown the caller's own slices, also when a Func of
// this package is changed.
func TestOwnFunctionsNeedNoCopy(t *testing.T) {
	for _, f := range []Func{Balanced(), RoundRobin()} {
		if f.copies() {
			t.Errorf("%s is given a copy", f.Name)
		}
	}
	f := Balanced()
	f.Assign = func(in Input) (Assignment, error) {
		clear(in.Members)
		clear(in.Partitions)
		return make(Assignment, len(in.Partitions)), nil
	}
	in := Input{Members: []Member{{Name: "a"}}, Partitions: []kiel.Partition{{Topic: "t"}}}
	if _, err := Call(f, in); err != nil || in.Members[0].Name != "a" || in.Partitions[0].Topic != "t" {
		t.Errorf("the input became %v, %v", in, err)
	}
	if !(Func{Name: "x", Assign: f.Assign}).copies() {
		t.Error("a user's function is given no copy")
	}
}
