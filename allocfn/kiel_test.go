package allocfn_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

func TestFromKielFaults(t *testing.T) {
	in := group([]string{"a", "b"}, "t:0", "t:1", "u:0")
	type mapping = map[string]map[string][]int32
	tests := map[string]struct {
		mapping mapping
		is      error
		text    string
	}{
		"nil":                 {nil, allocfn.ErrUnassigned, `"t:0"`},
		"unassigned":          {mapping{"a": {"t": {1, 0}}}, allocfn.ErrUnassigned, `"u:0"`},
		"assigned twice":      {mapping{"a": {"t": {0, 1}}, "b": {"t": {1}, "u": {0}}}, allocfn.ErrAssignedTwice, `"t:1", to "a" and to "b"`},
		"twice to one":        {mapping{"a": {"t": {0, 1, 1}, "u": {0}}}, allocfn.ErrAssignedTwice, `"t:1"`},
		"unknown member":      {mapping{"a": {"t": {0, 1}}, "c": {"u": {0}}}, allocfn.ErrUnknownTarget, `member "c"`},
		"idle unknown member": {mapping{"a": {"t": {0, 1}, "u": {0}}, "c": nil}, allocfn.ErrUnknownTarget, `member "c"`},
		"unknown topic":       {mapping{"a": {"t": {0, 1}, "u": {0}, "x\n": {0}}}, allocfn.ErrUnknownTarget, `"x\n:0"`},
		"unknown partition":   {mapping{"a": {"t": {0, 1, 2}, "u": {0}}}, allocfn.ErrUnknownTarget, `"t:2"`},
		"negative partition":  {mapping{"a": {"t": {0, 1, -1}, "u": {0}}}, allocfn.ErrUnknownTarget, `"t:-1"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := allocfn.FromKiel("users-own", func([]string, []string) map[string]map[string][]int32 { return tt.mapping })
			a, err := allocfn.Call(f, in)
			if a != nil || !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.text) || !strings.Contains(err.Error(), "users-own") {
				t.Errorf("got %v, %v", a, err)
			}
			if _, err := f.Assign(in); !errors.Is(err, tt.is) {
				t.Errorf("without Call: got %v", err)
			}
			if a, err := allocfn.FromMapping(in, tt.mapping); a != nil || !errors.Is(err, tt.is) || !strings.HasPrefix(err.Error(), "allocfn: ") || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("FromMapping: got %v, %v", a, err)
			}
		})
	}
}

// TestFromKielReportsTheFirstFault makes sure that all processes report the same of several faults.
func TestFromKielReportsTheFirstFault(t *testing.T) {
	in := group([]string{"a"}, "t:0")
	for want, mapping := range map[string]map[string]map[string][]int32{
		`member "c"`: {"c": nil, "d": nil, "e": nil, "f": nil},
		`"u:0"`:      {"a": {"u": {0}, "v": {0}, "w": {0}, "x": {0}}},
	} {
		f := allocfn.FromKiel("x", func([]string, []string) map[string]map[string][]int32 { return mapping })
		for range 50 {
			if _, err := allocfn.Call(f, in); !strings.Contains(err.Error(), want) {
				t.Errorf("want %s, got %v", want, err)
			}
		}
	}
}

func TestFromKielGivesSortedTexts(t *testing.T) {
	in := group([]string{"b", "a", "é", "Z"}, "t:2", "t:10", "a:0", "a-1:0")
	f := allocfn.FromKiel("x", func(members, partitions []string) map[string]map[string][]int32 {
		if want := []string{"Z", "a", "b", "é"}; !slices.Equal(members, want) {
			t.Errorf("members %q", members)
		}
		if want := []string{"a-1:0", "a:0", "t:10", "t:2"}; !slices.Equal(partitions, want) {
			t.Errorf("partitions %q", partitions)
		}
		return map[string]map[string][]int32{"é": {"t": {10, 2}, "a": {0}, "a-1": {0}, "empty": {}}, "Z": {}}
	})
	a, err := allocfn.Call(f, in)
	if err != nil || !slices.Equal(a, allocfn.Assignment{3, 3, 3, 3}) {
		t.Errorf("got %v, %v", a, err)
	}
}

func TestMappingLeavesOutIdleMembers(t *testing.T) {
	in := group([]string{"a", "b", "c"}, "t:0", "t:1")
	a, err := allocfn.Call(allocfn.RoundRobin(), in)
	noerr.Must(t, err)
	got := allocfn.Mapping(in, a)
	if _, ok := got["c"]; ok || len(got) != 2 {
		t.Errorf("got %v", got)
	}
	if empty := allocfn.Mapping(allocfn.Input{}, nil); empty == nil || len(empty) != 0 {
		t.Errorf("got %v", empty)
	}
}

// TestMapping holds Mapping to its definition, also where the partitions of a topic stand in several places, which only a set
// that is written oddly has.
func TestMapping(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		if len(in.Members) == 0 {
			return
		}
		if rapid.Bool().Draw(t, "shuffled") {
			in.Partitions = rapid.Permutation(in.Partitions).Draw(t, "order")
		}
		a := make(allocfn.Assignment, len(in.Partitions))
		want := make(map[string]map[string][]int32)
		for i, p := range in.Partitions {
			a[i] = rapid.Int32Range(0, int32(len(in.Members)-1)).Draw(t, "owner")
			name := in.Members[a[i]].Name
			if want[name] == nil {
				want[name] = make(map[string][]int32)
			}
			want[name][p.Topic] = append(want[name][p.Topic], p.ID)
		}
		got := allocfn.Mapping(in, a)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		if back, err := allocfn.FromMapping(in, got); err != nil || !slices.Equal(back, a) {
			t.Fatalf("FromMapping: got %v, %v, want %v", back, err, a)
		}
		// Appending to the slice of one topic writes nothing into that of another.
		for _, topics := range got {
			for topic, ids := range topics {
				topics[topic] = append(ids, -1)[:len(ids)]
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("after appending to each: got %v, want %v", got, want)
		}
	})
}

// TestMappingAllocatesPerMember counts: a map and the numbers of each member, and what a map of so many topics needs, whatever
// the number of partitions.
func TestMappingAllocatesPerMember(t *testing.T) {
	in := groupOf(numberedNames("m", 50), topicsOf(10_000, 10)...)
	a := mustCall(t, allocfn.Balanced(), in)
	if n := testing.AllocsPerRun(5, func() { allocfn.Mapping(in, a) }); n > 10*50 {
		t.Errorf("%v allocations for 50 members", n)
	}
}
