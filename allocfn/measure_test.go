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

// drawPlan draws a small plan, even or not.
func drawPlan(t *rapid.T, label string, weights bool) allocfn.Plan {
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 0, 3, rapid.ID).Draw(t, label+" members")
	slices.Sort(names)
	var p allocfn.Plan
	for _, n := range names {
		m := allocfn.Member{Name: n}
		if weights {
			m.Weight = rapid.IntRange(0, 3).Draw(t, "weight")
		}
		p.Input.Members = append(p.Input.Members, m)
	}
	all := []kiel.Partition{{Topic: "t", ID: 0}, {Topic: "t", ID: 1}, {Topic: "t", ID: 2}, {Topic: "t", ID: 10}, {Topic: "t-1", ID: 0}, {Topic: "t-1", ID: 1}, {Topic: "u", ID: 5}}
	p.Input.Partitions = rapid.SliceOfNDistinct(rapid.SampledFrom(all), 0, 6, rapid.ID).Draw(t, label+" partitions")
	kiel.SortPartitions(p.Input.Partitions)
	for range p.Input.Partitions {
		if len(names) > 0 {
			p.Assignment = append(p.Assignment, rapid.Int32Range(0, int32(len(names)-1)).Draw(t, "owner"))
		}
	}
	return p
}

// ownersByName is what Measure goes by, told the plain way.
func ownersByName(p allocfn.Plan) map[kiel.Partition]string {
	owners := make(map[kiel.Partition]string)
	for i, m := range p.Assignment {
		owners[p.Input.Partitions[i]] = p.Input.Members[m].Name
	}
	return owners
}

func movedByName(before map[kiel.Partition]string, after allocfn.Plan) (kept, moved int) {
	now := ownersByName(after)
	for _, p := range after.Input.Partitions {
		if owner, ok := before[p]; ok {
			kept++
			if now[p] != owner {
				moved++
			}
		}
	}
	return kept, moved
}

// isEven says whether |count - share| < 1 for all members.
func isEven(members []allocfn.Member, owners []int32) bool {
	sum := 0
	counts := make([]int, len(members))
	for _, m := range members {
		sum += max(1, m.Weight)
	}
	for _, m := range owners {
		counts[m]++
	}
	for i, m := range members {
		if d := counts[i]*sum - len(owners)*max(1, m.Weight); d <= -sum || d >= sum {
			return false
		}
	}
	return true
}

// TestMeasureAgainstBruteForce compares the lower bound with the least that any even plan moves, and the rest with a plain count.
func TestMeasureAgainstBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.Bool().Draw(t, "weights")
		before, after := drawPlan(t, "before", weights), drawPlan(t, "after", weights)
		m, err := allocfn.Measure(before, after)
		noerr.Must(t, err)
		owners := ownersByName(before)
		kept, moved := movedByName(owners, after)
		if m.Total.Kept != kept || m.Total.Moved != moved {
			t.Fatalf("got %v, want %d of %d", m, moved, kept)
		}
		if got, want := m.Total.After.Even, isEven(after.Input.Members, after.Assignment); got != want {
			t.Fatalf("even is %v", got)
		}
		least := math.MaxInt
		try := allocfn.Plan{Input: after.Input}
		var all func()
		all = func() {
			if len(try.Assignment) == len(after.Input.Partitions) || len(after.Input.Members) == 0 {
				if isEven(after.Input.Members, try.Assignment) {
					_, moved := movedByName(owners, try)
					least = min(least, moved)
				}
				return
			}
			for owner := range after.Input.Members {
				try.Assignment = append(try.Assignment, int32(owner))
				all()
				try.Assignment = try.Assignment[:len(try.Assignment)-1]
			}
		}
		all()
		if m.LowerBound != least {
			t.Fatalf("the lower bound is %d, some even plan moves %d", m.LowerBound, least)
		}
		checkTopics(t, before, after, m)
	})
}

func checkTopics(t *rapid.T, before, after allocfn.Plan, m allocfn.Movement) {
	t.Helper()
	sum := allocfn.Change{}
	for i, c := range m.Topics {
		if i > 0 && m.Topics[i-1].Topic >= c.Topic {
			t.Fatalf("topics out of order: %v", m.Topics)
		}
		sum.Kept += c.Kept
		sum.Moved += c.Moved
		for _, side := range []struct {
			allocfn.Plan
			got allocfn.Load
		}{{before, c.Before}, {after, c.After}} {
			counts := make([]int, len(side.Input.Members))
			var owners []int32
			n := 0
			for k, p := range side.Input.Partitions {
				if p.Topic != c.Topic {
					continue
				}
				n++
				if len(counts) > 0 {
					counts[side.Assignment[k]]++
					owners = append(owners, side.Assignment[k])
				}
			}
			want := allocfn.Load{Partitions: n, Even: isEven(side.Input.Members, owners)}
			if len(counts) > 0 {
				want.Least, want.Most = slices.Min(counts), slices.Max(counts)
			}
			if side.got != want {
				t.Fatalf("topic %s: got %+v, want %+v", c.Topic, side.got, want)
			}
		}
	}
	if sum.Kept != m.Total.Kept || sum.Moved != m.Total.Moved {
		t.Fatalf("topics sum up to %+v, total %+v", sum, m.Total)
	}
}

func TestMeasureJoinAndLeave(t *testing.T) {
	plan := func(members []string, owners ...int32) allocfn.Plan {
		items := make([]string, len(owners))
		for i := range items {
			items[i] = fmt.Sprintf("t:%d", i)
		}
		return allocfn.Plan{Input: group(members, items...), Assignment: owners}
	}
	ab, abc := []string{"a", "b"}, []string{"a", "b", "c"}
	for name, tt := range map[string]struct {
		before, after allocfn.Plan
		moved, bound  int
	}{
		"join":        {plan(ab, 0, 1, 0, 1), plan(abc, 0, 1, 2, 1), 1, 1},
		"leave":       {plan(abc, 0, 1, 2, 1), plan(ab, 0, 1, 0, 1), 1, 1},
		"nothing":     {plan(ab, 0, 1, 0, 1), plan(ab, 0, 1, 0, 1), 0, 0},
		"all at once": {plan(ab, 0, 1, 0, 1), plan(ab, 1, 0, 1, 0), 4, 0},
		"replaced":    {plan(ab, 0, 1, 0, 1), plan([]string{"a", "c"}, 0, 1, 0, 1), 2, 2},
		"other index": {plan([]string{"b", "c"}, 0, 1), plan(abc, 1, 2), 0, 0},
		"first":       {plan(nil), plan(ab, 0, 1), 0, 0},
		"last goes":   {plan(ab, 0, 1), plan(nil), 0, 0},
		"grows":       {plan(ab, 0, 1), plan(ab, 0, 1, 0, 1), 0, 0},
	} {
		m, err := allocfn.Measure(tt.before, tt.after)
		if err != nil || m.Total.Moved != tt.moved || m.LowerBound != tt.bound {
			t.Errorf("%s: got %v, %v, want %d, at least %d", name, m, err, tt.moved, tt.bound)
		}
	}
	// Nobody is left, the partitions are: all lose their owner.
	gone := allocfn.Plan{Input: group(nil, "t:0", "t:1")}
	m, err := allocfn.Measure(plan(ab, 0, 1), gone)
	if err != nil || m.Total.Moved != 2 || m.LowerBound != 2 {
		t.Errorf("nobody left: %v, %v", m, err)
	}
}

func TestMeasurePlaces(t *testing.T) {
	odd, _ := input([]string{"a", "b"}, []string{"t:01", "t:10", "t:2"})
	plain := group([]string{"a", "b"}, "t:1", "t:10", "t:2")
	if odd.Places == nil {
		t.Fatal("nothing odd")
	}
	m, err := allocfn.Measure(allocfn.Plan{odd, allocfn.Assignment{0, 1, 0}}, allocfn.Plan{plain, allocfn.Assignment{0, 1, 0}})
	if err != nil || m.Total.Kept != 3 || m.Total.Moved != 0 {
		t.Errorf("got %v, %v", m, err)
	}
	// A topic in two places: nothing forbids that where there are places.
	odd = allocfn.Input{
		Members: plain.Members, Places: []int32{0, 1, 2},
		Partitions: []kiel.Partition{{Topic: "t", ID: 10}, {Topic: "a", ID: 0}, {Topic: "t", ID: 2}},
	}
	m, err = allocfn.Measure(allocfn.Plan{odd, allocfn.Assignment{1, 1, 0}}, allocfn.Plan{plain, allocfn.Assignment{0, 1, 0}})
	if err != nil || m.Total.Kept != 2 || m.Total.Moved != 0 || len(m.Topics) != 2 {
		t.Errorf("got %v, %v", m, err)
	}
}

func TestMeasureRefuses(t *testing.T) {
	good := allocfn.Plan{group([]string{"a", "b"}, "t:0"), allocfn.Assignment{0}}
	heavy := group([]string{"a", "b", "c"}, "t:0")
	for i := range heavy.Members {
		heavy.Members[i].Weight = math.MaxInt
	}
	for want, bad := range map[string]struct {
		plan allocfn.Plan
		is   error
	}{
		"twice":       {allocfn.Plan{Input: allocfn.Input{Members: []allocfn.Member{{Name: "a"}, {Name: "a"}}}}, allocfn.ErrInput},
		"unassigned":  {allocfn.Plan{Input: good.Input}, allocfn.ErrUnassigned},
		"member 2 of": {allocfn.Plan{good.Input, allocfn.Assignment{2}}, allocfn.ErrUnknownTarget},
		"2 owners":    {allocfn.Plan{good.Input, allocfn.Assignment{0, 0}}, allocfn.ErrUnknownTarget},
	} {
		if _, err := allocfn.Measure(bad.plan, good); !errors.Is(err, bad.is) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "before") {
			t.Errorf("%s: got %v", want, err)
		}
		if _, err := allocfn.Measure(good, bad.plan); !errors.Is(err, bad.is) || !strings.Contains(err.Error(), "after") {
			t.Errorf("%s: got %v", want, err)
		}
	}
	if m, err := allocfn.Measure(good, allocfn.Plan{heavy, allocfn.Assignment{0}}); err != nil || !m.Total.After.Even {
		t.Errorf("members of the greatest weight: %+v, %v", m, err)
	}
}

func ExampleMeasure() {
	plan := func(members ...allocfn.Member) allocfn.Plan {
		in := allocfn.Input{Members: members}
		for i := range int32(6) {
			in.Partitions = append(in.Partitions, kiel.Partition{Topic: "orders", ID: i})
		}
		a, err := allocfn.Call(allocfn.RoundRobin(), in)
		if err != nil {
			panic(err)
		}
		return allocfn.Plan{Input: in, Assignment: a}
	}
	a, b, c := allocfn.Member{Name: "a"}, allocfn.Member{Name: "b"}, allocfn.Member{Name: "c"}
	m, err := allocfn.Measure(plan(a, b), plan(a, b, c))
	if err != nil {
		panic(err)
	}
	fmt.Println(m)
	// Output:
	// 4 of 6 partitions moved (at least 2), members 2 to 3, spread 0 to 0
}

func TestMovementTable(t *testing.T) {
	before := allocfn.Plan{group([]string{"a", "b"}, "orders:0", "orders:1", "x\x1b[31m:0", "é:0"), allocfn.Assignment{0, 1, 0, 1}}
	after := allocfn.Plan{group([]string{"b", "c"}, "orders:0", "orders:1", "orders:2", "é:0"), allocfn.Assignment{0, 0, 0, 1}}
	m, err := allocfn.Measure(before, after)
	noerr.Must(t, err)
	var text strings.Builder
	n, err := m.WriteTo(&text)
	want := strings.Join([]string{
		`TOPIC        PARTITIONS  PER MEMBER  SPREAD  MOVED`,
		`orders       2 > 3       1-1 > 0-3   0 > 3   1`,
		`"x\x1b[31m"  1 > 0       0-1 > 0-0   1 > 0   0`,
		`é            1           0-1         1       1`,
		`(all)        4           2-2 > 1-3   0 > 2   2`,
		`2 of 3 partitions moved (at least 1), members 2 to 2, spread 0 to 2`,
		``,
	}, "\n")
	if got := text.String(); got != want || err != nil || n != int64(len(want)) {
		t.Errorf("got %d, %v\n%s\nwant\n%s", n, err, got, want)
	}
	fault := errors.New("full")
	if _, err := m.WriteTo(badWriter{fault}); !errors.Is(err, fault) {
		t.Errorf("got %v", err)
	}
}

type badWriter struct{ err error }

func (w badWriter) Write([]byte) (int, error) { return 0, w.err }
