package allocator

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/party"
)

// view is all that members read, as what a test may change.
type view struct {
	fn      allocfn.Func
	records map[string]*record // by the names of members; nil is a member in Python
	items   []string
	zones   map[kiel.Partition]string
}

func newView() *view {
	return &view{
		fn: allocfn.Balanced(),
		records: map[string]*record{
			"a": {Weight: 2, Topics: []string{"t", "u"}}, "b": {Zone: "x", Topics: []string{"u", "t", "^v.*"}}, "c": {Topics: []string{"u", "t", "^v.*"}},
		},
		items: []string{"t:0", "t:1", "t:10", "t:2", "u:0", "v1:0", "v2:0"},
		zones: map[kiel.Partition]string{{Topic: "t"}: "x", {Topic: "t", ID: 1}: "y", {Topic: "gone"}: "z"},
	}
}

// compute returns the mapping that a member computes after another one, having read lists in the order that shuffle gives them.
func (v *view) compute(t *testing.T, before *mapping, shuffle func([]string)) *mapping {
	t.Helper()
	o, err := Options{Func: v.fn, PythonFunc: v.fn.ID()}.withDefaults()
	noerr.Must(t, err)
	var ms []party.Member
	for _, name := range slices.Sorted(maps.Keys(v.records)) {
		m := party.Member{Name: name, Czxid: 1}
		if r := v.records[name]; r != nil {
			written := *r
			written.V, written.Functions, written.Topics = recordVersion, []string{v.fn.ID()}, slices.Clone(r.Topics)
			shuffle(written.Topics)
			if m.Data, err = json.Marshal(written); err != nil {
				t.Fatal(err)
			}
		}
		ms = append(ms, m)
	}
	known, on := &inputs{}, occasion{zones: 1}
	if before.inputs != nil {
		known = before.inputs
		if on.zones = before.occasion.zones; !maps.Equal(before.in.Zones, v.zones) {
			on.zones++
		}
	}
	zones := make(map[kiel.Partition]string)
	keys := slices.SortedFunc(maps.Keys(v.zones), kiel.Partition.Compare)
	rand.Shuffle(len(keys), func(i, k int) { keys[i], keys[k] = keys[k], keys[i] })
	for _, p := range keys {
		zones[p] = v.zones[p]
	}
	r := computeMapping(known, ms, slices.Sorted(slices.Values(v.items)), zones, o)
	if r.err != nil {
		t.Fatal(r.err)
	}
	r.mapping.follow(before, on)
	r.mapping.hashes = hashesOf(r.mapping, before)
	return r.mapping
}

func noMapping() *mapping { return newMapping(allocfn.Input{}, "", nil) }

func asIs([]string) {}

// viewChanges are changes of a view that the function can see, but for the first ones. mapping says that the partitions or the
// names of members are others.
var viewChanges = map[string]struct {
	change        func(v *view)
	same, mapping bool
}{
	"nothing":          {change: func(*view) {}, same: true},
	"order of topics":  {change: func(v *view) { slices.Reverse(v.records["a"].Topics) }, same: true},
	"an item twice":    {change: func(v *view) { v.items = append(v.items, "t:x") }, same: true},
	"unwanted topic":   {change: func(v *view) { v.items = append(v.items, "w:0") }, same: true},
	"weight":           {change: func(v *view) { v.records["a"].Weight = 3 }},
	"weights swapped":  {change: func(v *view) { v.records["a"].Weight, v.records["c"].Weight = 0, 2 }},
	"zone of a member": {change: func(v *view) { v.records["b"].Zone = "y" }},
	"no zone":          {change: func(v *view) { v.records["b"].Zone = "" }},
	"topic less":       {change: func(v *view) { v.records["a"].Topics = []string{"t"} }},
	"all topics":       {change: func(v *view) { v.records["a"].Topics = nil }},
	"pattern":          {change: func(v *view) { v.records["c"].Topics = []string{"u", "t", "^v1"} }},
	"a topic renamed": {change: func(v *view) {
		v.records["a"].Topics = []string{"t", "uu"}
	}},
	"member in Python":    {change: func(v *view) { v.records["d"] = nil }, mapping: true},
	"member more":         {change: func(v *view) { v.records["d"] = &record{} }, mapping: true},
	"member less":         {change: func(v *view) { delete(v.records, "c") }, mapping: true},
	"name":                {change: func(v *view) { v.records["cc"] = v.records["c"]; delete(v.records, "c") }, mapping: true},
	"partition more":      {change: func(v *view) { v.items = append(v.items, "t:3") }, mapping: true},
	"partition less":      {change: func(v *view) { v.items = v.items[1:] }, mapping: true},
	"other partition":     {change: func(v *view) { v.items[3] = "t:3" }, mapping: true},
	"other topic":         {change: func(v *view) { v.items[6] = "v3:0" }, mapping: true},
	"a place":             {change: func(v *view) { v.items[3] = "t:02" }, mapping: true},
	"zone of a partition": {change: func(v *view) { v.zones[kiel.Partition{Topic: "t"}] = "y" }},
	"zones swapped": {change: func(v *view) {
		v.zones[kiel.Partition{Topic: "t"}], v.zones[kiel.Partition{Topic: "t", ID: 1}] = "y", "x"
	}},
	"zone of another":     {change: func(v *view) { v.zones[kiel.Partition{Topic: "t", ID: 2}] = "x" }},
	"no zones":            {change: func(v *view) { v.zones = nil }},
	"version of function": {change: func(v *view) { v.fn.Version = 7 }},
	"name of function":    {change: func(v *view) { v.fn.Name = "mine" }},
}

// Members that read the same have the same hashes, in whatever order they read it and whatever was before; any change of what the
// function is given changes the hash of the inputs.
func TestHashes(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	shuffle := func(list []string) { random.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] }) }

	first := newView().compute(t, noMapping(), asIs)
	all := map[hash]string{}
	for _, name := range slices.Sorted(maps.Keys(viewChanges)) {
		c := viewChanges[name]
		v := newView()
		c.change(v)
		after, anew := v.compute(t, first, asIs), v.compute(t, noMapping(), shuffle)
		if after.hashes != anew.hashes {
			t.Errorf("%s: after another mapping the hashes are %s, anew %s", name, show(after), show(anew))
		}
		if same := after.hashes.inputs == first.hashes.inputs; same != c.same {
			t.Errorf("%s: the inputs' hash is the same: %t", name, same)
		}
		if same := slices.Equal(after.owner, first.owner) && !c.mapping; same != (after.hashes.mapping == first.hashes.mapping) {
			t.Errorf("%s: the mapping is the same: %t, its hash is %s and was %s", name, same, after.hashes.mapping, first.hashes.mapping)
		}
		if other, ok := all[after.hashes.inputs]; ok && !c.same {
			t.Errorf("%s has the inputs' hash of %s", name, other)
		}
		all[after.hashes.inputs] = name
	}
}

func show(m *mapping) string { return m.hashes.mapping.String() + " of " + m.hashes.inputs.String() }

// The hashes are those of members of all versions, on all processors, and a float64 holds each.
func TestHashesAreTheSameEverywhere(t *testing.T) {
	m := newView().compute(t, noMapping(), asIs)
	if got, want := show(m), "3348dc3ad493 of 37240215b6c4"; got != want {
		t.Errorf("%s, want %s: members of two versions in a group would seem to disagree", got, want)
	}
	for _, h := range []hash{m.hashes.mapping, m.hashes.inputs, short(1<<64 - 1), short(0)} {
		if h == 0 || hash(float64(h)) != h || len(h.String()) != 12 || strings.Trim(h.String(), "0123456789abcdef") != "" {
			t.Errorf("%s", h)
		}
	}
}

// Each owner counts, at its place.
func TestHashOfOwners(t *testing.T) {
	m := newView().compute(t, noMapping(), asIs)
	seen := map[hash]bool{m.hashes.mapping: true}
	for i := range m.owner {
		for by := int32(1); by < 3; by++ {
			other := *m
			other.owner = slices.Clone(m.owner)
			other.owner[i] = (other.owner[i] + by) % 3
			h := hashesOf(&other, m)
			if h.inputs != m.hashes.inputs || seen[h.mapping] {
				t.Errorf("owner %d: %+v after %s", i, h, show(m))
			}
			seen[h.mapping] = true
		}
	}
}
