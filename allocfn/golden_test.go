package allocfn_test

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// vector is one entry of a file made by testdata/generate.py.
type vector struct {
	Name    string
	Members []string
	Items   []string
	Mapping map[string]map[string][]json.Number
}

// mapping returns the mapping as Go has it.
func (v vector) mapping(t *testing.T) map[string]map[string][]int32 {
	t.Helper()
	all := make(map[string]map[string][]int32)
	for m, topics := range v.Mapping {
		all[m] = make(map[string][]int32)
		for topic, ids := range topics {
			for _, id := range ids {
				n, err := strconv.ParseInt(id.String(), 10, 32)
				noerr.Must(t, err)
				all[m][topic] = append(all[m][topic], int32(n))
			}
		}
	}
	return all
}

func load[T any](t *testing.T, name string) []T {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	noerr.Must(t, err)
	var vectors []T
	noerr.Must(t, json.Unmarshal(data, &vectors))
	if len(vectors) < 10 {
		t.Fatalf("%s holds %d vectors", name, len(vectors))
	}
	return vectors
}

// input reads a group as the allocator does.
func input(members, items []string) (allocfn.Input, []string) {
	partitions, places, bad := kiel.ParsePartitions(items)
	in := allocfn.Input{Partitions: partitions, Places: places}
	for _, name := range slices.Sorted(slices.Values(members)) {
		in.Members = append(in.Members, allocfn.Member{Name: name})
	}
	return in, bad
}

// TestRoundRobinIsKiels compares with the output of kiel's naive_allocator. Only what Go leaves to nobody may be missing: numbers
// out of range, topics without a name, and a partition that is in the set in two spellings stays with the first.
func TestRoundRobinIsKiels(t *testing.T) {
	strange := 0
	for _, v := range load[vector](t, "roundrobin.json") {
		in, bad := input(v.Members, v.Items)
		a, err := allocfn.Call(allocfn.RoundRobin(), in)
		if err != nil {
			t.Errorf("%s: %v", v.Name, err)
			continue
		}
		got := allocfn.Mapping(in, a)
		if len(bad) == 0 {
			if want := v.mapping(t); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: got %v, want %v", v.Name, got, want)
			}
			continue
		}
		strange++
		compareLoosely(t, v, in, a)
	}
	if strange < 10 {
		t.Errorf("only %d vectors had items that Go leaves to nobody", strange)
	}
}

// compareLoosely checks that each partition's owner is one to which Python gives it too, and that nothing which Python gives to
// one member is missing.
func compareLoosely(t *testing.T, v vector, in allocfn.Input, a allocfn.Assignment) {
	t.Helper()
	python := make(map[kiel.Partition][]string)
	for _, m := range slices.Sorted(maps.Keys(v.Mapping)) {
		for topic, ids := range v.Mapping[m] {
			for _, id := range ids {
				if n, err := strconv.ParseInt(id.String(), 10, 32); err == nil && n >= 0 && topic != "" {
					p := kiel.Partition{Topic: topic, ID: int32(n)}
					python[p] = append(python[p], m)
				}
			}
		}
	}
	if len(python) != len(in.Partitions) && len(in.Members) > 0 {
		t.Errorf("%s: %d partitions, Python has %d", v.Name, len(in.Partitions), len(python))
	}
	for i, m := range a {
		p := in.Partitions[i]
		if !slices.Contains(python[p], in.Members[m].Name) {
			t.Errorf("%s: %s goes to %s, in Python to %v", v.Name, p, in.Members[m].Name, python[p])
		}
	}
}

func TestRangeVectors(t *testing.T) {
	for _, v := range load[vector](t, "range.json") {
		in, bad := input(v.Members, v.Items)
		if len(bad) > 0 {
			t.Fatalf("%s: bad items %q", v.Name, bad)
		}
		a, err := allocfn.Call(allocfn.Range(), in)
		if err != nil {
			t.Errorf("%s: %v", v.Name, err)
			continue
		}
		if got, want := allocfn.Mapping(in, a), v.mapping(t); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", v.Name, got, want)
		}
	}
}

// TestNumbersArePythons compares with the output of Python's int().
func TestNumbersArePythons(t *testing.T) {
	type number struct {
		Text  string
		Value *string
	}
	for _, v := range load[number](t, "int.json") {
		p, err := kiel.ParsePartition("t:" + v.Text)
		want, inRange := int64(-1), false
		if v.Value != nil {
			n, parseErr := strconv.ParseInt(*v.Value, 10, 32)
			want, inRange = n, parseErr == nil && n >= 0
		}
		switch {
		case inRange && (err != nil || int64(p.ID) != want):
			t.Errorf("%q: got %v, %v, want %d", v.Text, p, err, want)
		case !inRange && err == nil:
			t.Errorf("%q: got %v, want an error", v.Text, p)
		}
		// Whatever int() reads keeps its place, so that the next goes where Python says.
		in, _ := input([]string{"a", "b"}, []string{"t:" + v.Text, "u:0"})
		a, err := allocfn.Call(allocfn.RoundRobin(), in)
		noerr.Must(t, err)
		wantOwner := int32(0)
		if v.Value != nil {
			wantOwner = 1
		}
		if got := a[len(a)-1]; got != wantOwner {
			t.Errorf("%q: the item after it goes to member %d, want %d", v.Text, got, wantOwner)
		}
	}
}
