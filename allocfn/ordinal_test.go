package allocfn_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kielgo/kiel/allocfn"
)

// At the tail as few partitions move as can, by however many members the group grows or shrinks.
func TestOrdinalMovesTheLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ps := drawTopics(t)
		most := 2*len(ps) + 2
		n := rapid.IntRange(1, most).Draw(t, "before")
		m := rapid.OneOf(rapid.IntRange(1, most), rapid.IntRange(max(1, n-1), n+1)).Draw(t, "after")
		got := mustMeasure(t, allocfn.Ordinal(), groupOf(numberedNames("web", n), ps...), groupOf(numberedNames("web", m), ps...))
		if got.Total.Moved != got.LowerBound {
			t.Fatalf("%d members to %d: %v", n, m, got)
		}
	})
	for _, s := range [][2]int{{10, 1000}, {100, 1000}, {99, 10_000}, {1000, 1000}} {
		for _, step := range []int{1, -1} {
			ps := topicOf("t", s[1])
			got := mustMeasure(t, allocfn.Ordinal(), groupOf(numberedNames("web", s[0]), ps...), groupOf(numberedNames("web", s[0]+step), ps...))
			if got.Total.Moved != got.LowerBound || got.Total.After.Spread() > 1 {
				t.Errorf("%d members to %d: %v", s[0], s[0]+step, got)
			}
		}
	}
}

func TestOrdinalRefuses(t *testing.T) {
	for _, tt := range []struct{ names, want []string }{
		{[]string{"a"}, []string{`"a" does not end in - and a number`}},
		{[]string{"web-0", "web"}, []string{`"web" does not end`}},
		{[]string{"web-0", "web-"}, []string{`"web-" does not end`}},
		{[]string{"web-0", "web-01"}, []string{`"web-01" does not end`}},
		{[]string{"web-0", "web-1a"}, []string{`"web-1a" does not end`}},
		{[]string{"web-0", "web-+1"}, []string{`"web-+1" does not end`}},
		{[]string{"web-0", "web-١"}, []string{`"web-١" does not end`}},
		{[]string{"web-0", "db-1"}, []string{`"db-1"`, `"web-0"`, "do not begin alike"}},
		{[]string{"0", "1"}, []string{`"0" does not end`}},
		{[]string{"web-1"}, []string{`"web-1" is there and "web-0" is not`}},
		{[]string{"web-0", "web-1", "web-3"}, []string{`"web-3" is there and "web-2" is not`}},
		{[]string{"web-0", "web-5", "web-6"}, []string{`"web-5" is there and "web-1" is not`}},
		{[]string{"web-0", "web-99999999999999999999"}, []string{`"web-99999999999999999999" is there and "web-1" is not`}},
		{[]string{"web-0", "\x1b-x"}, []string{`"\x1b-x"`}},
	} {
		_, err := allocfn.Call(allocfn.Ordinal(), groupOf(tt.names, topicOf("t", 3)...))
		if !errors.Is(err, allocfn.ErrOrdinals) {
			t.Errorf("%q: got %v", tt.names, err)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %q does not say %q", tt.names, err, want)
			}
		}
	}
	twice := groupOf([]string{"web-0", "web-1"}, topicOf("t", 3)...)
	twice.Members[1].Name = "web-0"
	if _, err := allocfn.Ordinal().Assign(twice); !errors.Is(err, allocfn.ErrOrdinals) {
		t.Errorf("twice: got %v", err)
	}
}
