package allocfn_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

func funcs() []allocfn.Func {
	return []allocfn.Func{allocfn.RoundRobin(), allocfn.Range(), kielRoundRobin()}
}

// kielRoundRobin is round robin written the way users of kiel write functions.
func kielRoundRobin() allocfn.Func {
	return allocfn.FromKiel("mine", func(members, partitions []string) map[string]map[string][]int32 {
		mapping := make(map[string]map[string][]int32)
		for i, text := range partitions {
			p, err := kiel.ParsePartition(text)
			if err != nil {
				panic(err)
			}
			m := members[i%len(members)]
			if mapping[m] == nil {
				mapping[m] = make(map[string][]int32)
			}
			mapping[m][p.Topic] = append(mapping[m][p.Topic], p.ID)
		}
		return mapping
	})
}

// drawInput draws a group of any shape, sorted as Input wants it.
func drawInput(t *rapid.T) allocfn.Input {
	name := rapid.OneOf(
		rapid.StringMatching(`[a-z]{1,3}:[0-9]{1,4}`),
		rapid.StringN(1, 5, -1),
		rapid.StringMatching(`[aé😀]{1,4}`),
		rapid.Just(strings.Repeat("x", 300)),
	)
	names := rapid.SliceOfNDistinct(name, 0, 20, rapid.ID).Draw(t, "members")
	slices.Sort(names)
	in := allocfn.Input{Partitions: drawPartitions(t)}
	for _, n := range names {
		in.Members = append(in.Members, allocfn.Member{Name: n, Weight: rapid.IntRange(0, 3).Draw(t, "weight")})
	}
	return in
}

func drawPartitions(t *rapid.T) []kiel.Partition {
	ps := rapid.SliceOfDistinct(rapid.Custom(func(t *rapid.T) kiel.Partition {
		return kiel.Partition{
			Topic: rapid.SampledFrom([]string{"a", "a-1", "a.b", "ab", "é", "orders"}).Draw(t, "topic"),
			ID:    rapid.OneOf(rapid.Int32Range(0, 15), rapid.Int32Range(0, math.MaxInt32)).Draw(t, "id"),
		}
	}), rapid.ID).Draw(t, "partitions")
	kiel.SortPartitions(ps)
	return ps
}

func TestProperties(t *testing.T) {
	for _, f := range funcs() {
		t.Run(f.Name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				in := drawInput(t)
				before := fmt.Sprint(in)
				a, err := allocfn.Call(f, in)
				noerr.Must(t, err)
				if len(in.Members) == 0 || len(in.Partitions) == 0 {
					if len(a) != 0 {
						t.Fatalf("got %v for nobody or nothing", a)
					}
					return
				}
				// Each partition once, to a known member.
				if len(a) != len(in.Partitions) {
					t.Fatalf("%d owners for %d partitions", len(a), len(in.Partitions))
				}
				total := make([]int, len(in.Members))
				perTopic := make(map[string][]int)
				for i, m := range a {
					topic := in.Partitions[i].Topic
					if perTopic[topic] == nil {
						perTopic[topic] = make([]int, len(in.Members))
					}
					total[m]++
					perTopic[topic][m]++
				}
				if s := spread(total); f.Name != "range" && s > 1 {
					t.Fatalf("total spread %d", s)
				}
				for topic, loads := range perTopic {
					if s := spread(loads); s > 1 {
						t.Fatalf("spread %d in topic %s", s, topic)
					}
				}
				// The same for any order in which the partitions come in.
				shuffled := in
				shuffled.Partitions = rapid.Permutation(in.Partitions).Draw(t, "shuffled")
				kiel.SortPartitions(shuffled.Partitions)
				again, err := allocfn.Call(f, shuffled)
				if err != nil || !slices.Equal(a, again) {
					t.Fatalf("another order of partitions: %v and %v, %v", a, again, err)
				}
				if after := fmt.Sprint(in); after != before {
					t.Fatalf("the input was changed to %s", after)
				}
			})
		})
	}
}

func spread(loads []int) int { return slices.Max(loads) - slices.Min(loads) }

func group(members []string, partitions ...string) allocfn.Input {
	in, bad := input(members, partitions)
	if len(bad) > 0 {
		panic(fmt.Sprint(bad))
	}
	return in
}

func TestCallRefusesBadInput(t *testing.T) {
	p := func(topic string, id int32) kiel.Partition { return kiel.Partition{Topic: topic, ID: id} }
	one := []allocfn.Member{{Name: "a"}}
	for want, in := range map[string]allocfn.Input{
		`member "a" twice`:           {Members: []allocfn.Member{{Name: "a"}, {Name: "a"}}},
		`member "a" is not in order`: {Members: []allocfn.Member{{Name: "b"}, {Name: "a"}}},
		`member "a" has weight -1`:   {Members: []allocfn.Member{{Name: "a", Weight: -1}}},
		`partition "t:1" twice`:      {Members: one, Partitions: []kiel.Partition{p("t", 1), p("t", 1)}},
		`"t:10" is not in order`:     {Members: one, Partitions: []kiel.Partition{p("t", 2), p("t", 10)}},
		`"a-1:0" is not in order`:    {Members: one, Partitions: []kiel.Partition{p("a", 0), p("a-1", 0)}},
		`1 places for 2 partitions`:  {Members: one, Partitions: []kiel.Partition{p("t", 1), p("t", 2)}, Places: []int32{0}},
		`partition "t:2" twice`:      {Members: one, Partitions: []kiel.Partition{p("t", 2), p("t", 2)}, Places: []int32{0, 1}},
		`"t:3" is not in order`:      {Members: one, Partitions: []kiel.Partition{p("t", 2), p("t", 3)}, Places: []int32{1, 1}},
		`"t:2" is not in order`:      {Members: one, Partitions: []kiel.Partition{p("t", 2)}, Places: []int32{-1}},
		`member "\n\x1b[31m" twice`:  {Members: []allocfn.Member{{Name: "\n\x1b[31m"}, {Name: "\n\x1b[31m"}}},
	} {
		if _, err := allocfn.Call(allocfn.RoundRobin(), in); !errors.Is(err, allocfn.ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s, got %v", want, err)
		}
	}
}

func TestCallRefusesBadFuncs(t *testing.T) {
	in := group([]string{"a"}, "t:0")
	assign := allocfn.RoundRobin().Assign
	for _, f := range []allocfn.Func{
		{},
		{Name: "x"},
		{Assign: assign},
		{Name: "Upper", Assign: assign},
		{Name: "a b", Assign: assign},
		{Name: "é", Assign: assign},
		{Name: strings.Repeat("x", 65), Assign: assign},
		allocfn.FromKiel("x", nil),
	} {
		if _, err := allocfn.Call(f, in); !errors.Is(err, allocfn.ErrFunc) {
			t.Errorf("%q: got %v", f.Name, err)
		}
	}
	noerr.Want(t, (allocfn.Func{Name: strings.Repeat("x", 62) + "-0", Assign: assign}).Validate())
}

func TestCallCatchesFaults(t *testing.T) {
	in := group([]string{"a", "b"}, "t:0", "t:1", "t:2")
	fault := errors.New("out of luck")
	var nothing error
	give := func(a ...int32) func(allocfn.Input) (allocfn.Assignment, error) {
		return func(allocfn.Input) (allocfn.Assignment, error) { return a, nil }
	}
	tests := map[string]struct {
		assign func(allocfn.Input) (allocfn.Assignment, error)
		is     error
		text   string
	}{
		"nothing":        {give(), allocfn.ErrUnassigned, `"t:0"`},
		"too short":      {give(0, 1), allocfn.ErrUnassigned, `"t:2"`},
		"unassigned":     {give(0, -1, 1), allocfn.ErrUnassigned, `"t:1"`},
		"unknown member": {give(0, 2, 1), allocfn.ErrUnknownTarget, `"t:1" assigned to member 2 of 2`},
		"far unknown":    {give(0, 1, math.MinInt32), allocfn.ErrUnknownTarget, `"t:2"`},
		"too long":       {give(0, 1, 0, 1), allocfn.ErrUnknownTarget, "4 owners for 3 partitions"},
		"error":          {func(allocfn.Input) (allocfn.Assignment, error) { return nil, fault }, fault, "out of luck"},
		"panic":          {func(allocfn.Input) (allocfn.Assignment, error) { panic("no\nway") }, allocfn.ErrPanic, `no\nway`},
		"runtime panic": {func(in allocfn.Input) (allocfn.Assignment, error) {
			return give()(allocfn.Input{Members: in.Members[7:8]})
		}, allocfn.ErrPanic, "out of range"},
		"panic with nil":       {func(allocfn.Input) (allocfn.Assignment, error) { panic(nothing) }, allocfn.ErrPanic, "nil"},
		"assignment and error": {func(allocfn.Input) (allocfn.Assignment, error) { return allocfn.Assignment{0, 0, 0}, fault }, fault, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := allocfn.Func{Name: "my-func", Assign: tt.assign}
			a, err := allocfn.Call(f, in)
			if a != nil || !errors.Is(err, tt.is) {
				t.Fatalf("got %v, %v", a, err)
			}
			for _, part := range []string{"my-func", tt.text} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}

// What a function panicked with, and where, can be told.
func TestPanicError(t *testing.T) {
	in := group([]string{"a"}, "t:0")
	fault := errors.New("out of luck\n" + strings.Repeat("x", 1000))
	_, err := allocfn.Call(allocfn.Func{Name: "my-func", Assign: func(allocfn.Input) (allocfn.Assignment, error) { return unlucky(fault) }}, in)
	p, ok := errors.AsType[*allocfn.PanicError](err)
	if !ok || p.Value != any(fault) || !errors.Is(err, fault) || !errors.Is(err, allocfn.ErrPanic) {
		t.Fatalf("got %v", err)
	}
	if !strings.Contains(string(p.Stack), "unlucky") {
		t.Errorf("the stack does not say where:\n%s", p.Stack)
	}
	if text := err.Error(); len(text) > 300 || strings.Contains(text, "\n") || !strings.HasPrefix(text, `allocfn: allocation function my-func panicked: "out of luck`) {
		t.Errorf("the text is %q", text)
	}
}

func unlucky(fault error) (allocfn.Assignment, error) { panic(fault) }

func TestCallKeepsInputFromHarm(t *testing.T) {
	in := group([]string{"a", "b"}, "t:0", "t:01", "t:2")
	in.Zones = map[kiel.Partition]string{in.Partitions[0]: "z"}
	in.Members[0].Topics = []string{"t"}
	before := fmt.Sprint(in)
	_, err := allocfn.Call(allocfn.Func{Name: "vandal", Assign: func(in allocfn.Input) (allocfn.Assignment, error) {
		clear(in.Members[0].Topics)
		clear(in.Members)
		clear(in.Partitions)
		clear(in.Places)
		clear(in.Zones)
		return make(allocfn.Assignment, len(in.Partitions)), nil
	}}, in)
	noerr.Must(t, err)
	if after := fmt.Sprint(in); after != before {
		t.Errorf("the input became %s", after)
	}
}

func TestFuncsAreTotal(t *testing.T) {
	for _, f := range funcs() {
		for _, in := range []allocfn.Input{{}, group([]string{"a"}), group(nil, "t:0"), group([]string{"a", "b", "c"}, "t:0")} {
			a, err := allocfn.Call(f, in)
			if err != nil || allocfn.Check(in, a) != nil {
				t.Errorf("%s: %v, %v", f.Name, a, err)
			}
			if got := allocfn.Mapping(in, a); len(got) != min(len(in.Members), len(in.Partitions)) {
				t.Errorf("%s: %v", f.Name, got)
			}
		}
	}
	doubled := allocfn.Input{
		Members:    []allocfn.Member{{Name: "a"}, {Name: "b"}},
		Partitions: []kiel.Partition{{Topic: "t"}, {Topic: "t"}, {Topic: "t", ID: 2}},
	}
	for _, f := range []allocfn.Func{allocfn.RoundRobin(), allocfn.Range()} {
		if a, err := f.Assign(doubled); len(a) != 3 || err != nil {
			t.Errorf("%s: %v, %v", f.Name, a, err)
		}
		nobody := group(nil, "t:0", "t:01")
		if a, err := f.Assign(nobody); len(a) != 0 || err != nil {
			t.Errorf("%s: %v, %v", f.Name, a, err)
		}
	}
}
