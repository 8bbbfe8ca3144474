package kiel

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestTextKey compares keys with the texts of their numbers, and takes the numbers from them again.
func TestTextKey(t *testing.T) {
	number := rapid.OneOf(rapid.Int32Range(0, 120), rapid.Int32(), rapid.SampledFrom([]int32{
		0, 1, 9, 10, 99, 100, 1e9 - 1, 1e9, 1e9 + 1, 2e9, math.MaxInt32, 214748364, -1, math.MinInt32,
	}))
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		want := strings.Compare(strconv.Itoa(int(a)), strconv.Itoa(int(b)))
		if got := cmp.Compare(textKey(a), textKey(b)); got != want {
			t.Fatalf("%d and %d: got %d, want %d", a, b, got, want)
		}
		if got := numberOf(textKey(a)); got != a {
			t.Fatalf("got %d, want %d", got, a)
		}
	})
}
