package allocfn_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// randomGroup makes a group of n members and p partitions from a seed.
func randomGroup(seed uint64, n, p int) allocfn.Input {
	r := rand.New(rand.NewPCG(seed, 0))
	in := allocfn.Input{}
	for i := range n {
		in.Members = append(in.Members, allocfn.Member{Name: fmt.Sprintf("host-%x:%d", r.Uint32(), i)})
	}
	slices.SortFunc(in.Members, func(a, b allocfn.Member) int { return strings.Compare(a.Name, b.Name) })
	topics := 1 + r.IntN(p/4+1)
	prefix := fmt.Sprintf("topic-%x-", r.Uint32())
	for i := range p {
		in.Partitions = append(in.Partitions, kiel.Partition{Topic: prefix + fmt.Sprint(i%topics), ID: int32(i / topics)})
	}
	kiel.SortPartitions(in.Partitions)
	return in
}

// weigh gives members weights and zones, and partitions zones, from a seed.
func weigh(seed uint64, in allocfn.Input) allocfn.Input {
	r := rand.New(rand.NewPCG(seed, 1))
	zone := func(n int) string { return []string{"", "a", "b", "c", "é"}[r.IntN(n)] }
	heaviest := []int{1, 3, 10, 100, math.MaxInt32}[r.IntN(5)]
	zones := r.IntN(6)
	for i := range in.Members {
		in.Members[i].Weight = r.IntN(heaviest)
		if r.IntN(3) == 0 {
			in.Members[i].Weight = heaviest
		}
		if zones > 0 {
			in.Members[i].Zone = zone(zones)
		}
	}
	if zones > 0 {
		in.Zones = make(map[kiel.Partition]string)
		for _, p := range in.Partitions {
			if r.IntN(4) > 0 {
				in.Zones[p] = zone(5)
			}
		}
	}
	return in
}

// drawGroup is drawInput with weights and zones of every kind.
func drawGroup(t *rapid.T) allocfn.Input {
	in := drawInput(t)
	if rapid.Bool().Draw(t, "weights") {
		weight := rapid.OneOf(rapid.IntRange(0, 4), rapid.IntRange(0, 200), rapid.IntRange(0, math.MaxInt))
		for i := range in.Members {
			in.Members[i].Weight = weight.Draw(t, "weight")
		}
	}
	if rapid.Bool().Draw(t, "zones") {
		zone := rapid.SampledFrom([]string{"", "a", "b", "é"})
		for i := range in.Members {
			in.Members[i].Zone = zone.Draw(t, "member's zone")
		}
		in.Zones = make(map[kiel.Partition]string)
		for _, p := range in.Partitions {
			if rapid.Bool().Draw(t, "has a zone") {
				in.Zones[p] = zone.Draw(t, "zone")
			}
		}
	}
	return in
}

// TestBalancedIsBrute compares with the definition, at sizes that make all of the short cuts count: from more members than
// partitions to members with so many that the sure part is large, and every remainder.
func TestBalancedIsBrute(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 2))
		n := 1 + r.IntN(1+r.IntN(30))
		p := 1 + r.IntN(1+r.IntN(200))
		if seed%5 == 0 {
			p = n * (1 + p/n)
		}
		in := randomGroup(seed, n, p)
		if seed%2 == 0 {
			in = weigh(seed, in)
		}
		got, err := allocfn.Call(allocfn.Balanced(), in)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if want := brute(in); !slices.Equal(got, want) {
			t.Fatalf("seed %d: %d members, %d partitions: got %v, want %v", seed, n, p, got, want)
		}
	}
}

// Balanced gives what its definition does, and what the doc promises of shares. Neither the order in which names came in, nor
// what was before, matters.
func TestBalancedIsBruteForStrangeNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawGroup(t)
		if len(in.Members) == 0 || len(in.Partitions) == 0 {
			return
		}
		got, err := allocfn.Call(allocfn.Balanced(), in)
		noerr.Must(t, err)
		if want := brute(in); !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		noerr.Must(t, allocfn.Check(in, got))
		checkShares(t, in, got)

		shuffled := in
		shuffled.Partitions = rapid.Permutation(in.Partitions).Draw(t, "partitions")
		shuffled.Members = rapid.Permutation(in.Members).Draw(t, "members")
		kiel.SortPartitions(shuffled.Partitions)
		slices.SortFunc(shuffled.Members, func(a, b allocfn.Member) int { return strings.Compare(a.Name, b.Name) })
		if again := mustCall(t, allocfn.Balanced(), shuffled); !slices.Equal(got, again) {
			t.Fatalf("in another order: %v and %v", got, again)
		}
	})
}

// checkShares compares members' numbers of partitions with their exact shares.
func checkShares(t *rapid.T, in allocfn.Input, a allocfn.Assignment) {
	t.Helper()
	quota, pooled, pool := bruteQuotas(in.Members, len(in.Partitions))
	loads := make([]int, len(in.Members))
	for _, m := range a {
		loads[m]++
	}
	for i, m := range a {
		zone := in.Zones[in.Partitions[i]]
		if zone == "" || in.Members[m].Zone == zone {
			continue
		}
		for j, other := range in.Members {
			if other.Zone == zone && loads[j] < quota[j] {
				t.Fatalf("%v of zone %q is not there, although member %d has room", in.Partitions[i], zone, j)
			}
		}
	}
	equal := true
	for j, load := range loads {
		equal = equal && bruteWeight(in.Members[j]).Cmp(bruteWeight(in.Members[0])) == 0
		if extra := load - quota[j]; extra != 0 && (extra != 1 || !pooled[j]) {
			t.Fatalf("member %d has %d, its quota is %d", j, load, quota[j])
		} else if extra == 1 {
			pool--
		}
	}
	if pool != 0 {
		t.Fatalf("%d of the pool remain", pool)
	}
	if equal && spread(loads) > 1 {
		t.Fatalf("spread %d", spread(loads))
	}
}

func TestBalancedIsTotal(t *testing.T) {
	p := kiel.Partition{Topic: "t"}
	one := []allocfn.Member{{Name: "a"}}
	for _, in := range []allocfn.Input{{}, {Members: one}, {Partitions: []kiel.Partition{p}}} {
		if a, err := allocfn.Balanced().Assign(in); a == nil || len(a) != 0 || err != nil {
			t.Errorf("%v: got %v, %v", in, a, err)
		}
	}
	// Input that Call refuses harms nobody either.
	a, err := allocfn.Balanced().Assign(allocfn.Input{
		Members:    []allocfn.Member{{Name: "b"}, {Name: "a"}, {Name: "a"}},
		Partitions: []kiel.Partition{p, p, {Topic: "", ID: math.MinInt32}, {ID: -1}, p},
	})
	if len(a) != 5 || err != nil {
		t.Errorf("got %v, %v", a, err)
	}
	for name, members := range map[string][]allocfn.Member{
		"has weight -1": {{Name: "a", Weight: -1}},
		"more than":     make([]allocfn.Member, 1<<21+1),
	} {
		_, err := allocfn.Balanced().Assign(allocfn.Input{Members: members, Partitions: []kiel.Partition{p}})
		if !errors.Is(err, allocfn.ErrInput) || !strings.Contains(err.Error(), name) {
			t.Errorf("want an error that says %s, got %v", name, err)
		}
	}
}

// TestBalancedPrefersZones checks that zones are kept where they can be, and what is left of them otherwise.
func TestBalancedPrefersZones(t *testing.T) {
	in := randomGroup(7, 12, 600)
	for i := range in.Members {
		in.Members[i].Zone = []string{"a", "b", "c"}[i%3]
	}
	in.Zones = make(map[kiel.Partition]string)
	plain := assign(t, in)
	home := func(of func(i int) string) (n int) {
		for i, p := range in.Partitions {
			in.Zones[p] = of(i)
		}
		for i, m := range assign(t, in) {
			if in.Members[m].Zone == in.Zones[in.Partitions[i]] {
				n++
			}
		}
		return n
	}
	for name, tt := range map[string]struct {
		of   func(i int) string
		want int
	}{
		"equal":         {func(i int) string { return []string{"a", "b", "c"}[i%3] }, 600},
		"one crowded":   {func(i int) string { return []string{"a", "a", "b"}[i%3] }, 400},
		"all in one":    {func(int) string { return "a" }, 200},
		"some nowhere":  {func(i int) string { return []string{"a", "", "b"}[i%3] }, 400},
		"some deserted": {func(i int) string { return []string{"a", "b", "d"}[i%3] }, 400},
	} {
		if got := home(tt.of); got != tt.want {
			t.Errorf("%s: %d partitions are in their zone, want %d", name, got, tt.want)
		}
	}
	// Zones that nobody is in change nothing.
	for _, p := range in.Partitions {
		in.Zones[p] = "d"
	}
	if !slices.Equal(assign(t, in), plain) {
		t.Error("a zone without members changes the result")
	}
}

// TestBalancedBoundsWeights checks that no weight makes it allocate much.
func TestBalancedBoundsWeights(t *testing.T) {
	in := randomGroup(8, 1_000, 1_000)
	for _, weight := range []int{1, 63, 64, 65, 1_000_000, math.MaxInt32, math.MaxInt} {
		for i := range in.Members {
			in.Members[i].Weight = weight - i%2*(weight/2)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		a := assign(t, in)
		runtime.ReadMemStats(&after)
		if mb := (after.TotalAlloc - before.TotalAlloc) >> 20; mb > 24 {
			t.Errorf("weight %d: allocated %d MB", weight, mb)
		}
		if err := allocfn.Check(in, a); err != nil {
			t.Errorf("weight %d: %v", weight, err)
		}
	}
}

func TestBalancedWithManyMembers(t *testing.T) {
	in := randomGroup(1, 1<<16, 3)
	a, err := allocfn.Call(allocfn.Balanced(), in)
	if err != nil || a[0] == a[1] || a[1] == a[2] || a[0] == a[2] {
		t.Errorf("got %v, %v", a, err)
	}
}
