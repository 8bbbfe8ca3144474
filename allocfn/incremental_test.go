package allocfn_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kielgo/kiel/allocfn"
)

// history takes an Evaluator from input to input, and counts what it repaired.
type history struct {
	e                allocfn.Evaluator
	repaired, others int
}

// step fails the test unless the result is want.
func (h *history) step(t rapid.TB, in allocfn.Input, want []int32) {
	t.Helper()
	got, err := h.e.Assign(in)
	if err != nil {
		t.Fatal(err)
	}
	if h.e.Repaired() {
		h.repaired++
	} else {
		h.others++
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%d members, %d partitions, repaired %v: differs",
			len(in.Members), len(in.Partitions), h.e.Repaired())
	}
}

// toggle lets a member of the pool join, or leave when it is there. The last
// one stays.
func toggle(in allocfn.Input, m allocfn.Member) allocfn.Input {
	i, found := slices.BinarySearchFunc(in.Members, m.Name, func(m allocfn.Member, name string) int {
		return strings.Compare(m.Name, name)
	})
	in.Members = slices.Clone(in.Members)
	if !found {
		in.Members = slices.Insert(in.Members, i, m)
	} else if len(in.Members) > 1 {
		in.Members = slices.Delete(in.Members, i, i+1)
	}
	return in
}

// TestEvaluatorIsBalanced takes evaluators through random histories of groups.
func TestEvaluatorIsBalanced(t *testing.T) {
	repaired, others := 0, 0
	for seed := range uint64(25) {
		r := rand.New(rand.NewPCG(seed, 6))
		pool := randomGroup(seed, 200, 1+r.IntN(4000))
		in := pool
		in.Members = slices.Clone(pool.Members[:60+r.IntN(100)])
		var h history
		for step := range 25 {
			in.Members = slices.Clone(in.Members)
			switch r.IntN(12) {
			case 0: // another set
				in.Partitions = slices.Clone(pool.Partitions[:1+r.IntN(len(pool.Partitions))])
			case 1: // the same set, read anew
				in.Partitions = slices.Clone(in.Partitions)
			case 2: // another weight
				in.Members[r.IntN(len(in.Members))].Weight = []int{0, 1, 2, 3, math.MaxInt32}[r.IntN(5)]
			case 3: // zones
				in.Zones = nil
				if r.IntN(2) == 0 {
					in = weigh(uint64(step), in)
				}
			case 4: // as many partitions, but one is another
				in.Partitions = slices.Clone(in.Partitions)
				in.Partitions[len(in.Partitions)-1].Topic += "~"
			case 5: // many go
				in.Members = in.Members[:1+r.IntN(len(in.Members))]
			}
			for range r.IntN(3) {
				in = toggle(in, pool.Members[r.IntN(len(pool.Members))])
			}
			h.step(t, in, assign(t, in))
		}
		repaired += h.repaired
		others += h.others
	}
	if repaired < 100 || others < 100 {
		t.Errorf("repaired %d results of %d", repaired, repaired+others)
	}
	t.Attr("evaluator_repaired", fmt.Sprintf("%d of %d", repaired, repaired+others))
}

// TestEvaluatorRepairs lets members come and go, one at a time or a few, and
// sees that none of it is computed anew.
func TestEvaluatorRepairs(t *testing.T) {
	for name, tt := range map[string]struct {
		members, partitions, heaviest, steps int
	}{
		"few each":       {300, 900, 0, 150},
		"some each":      {200, 4_000, 0, 150},
		"many each":      {160, 20_000, 0, 40},
		"large":          {400, 50_000, 0, 30},
		"idle members":   {300, 120, 0, 150},
		"weights":        {200, 6_000, 5, 80},
		"heavy weights":  {300, 12_000, 60, 40},
		"shares of zero": {400, 150, 40, 60},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(tt.members)))
			pool := randomGroup(uint64(tt.members), tt.members*6/5, tt.partitions)
			for i := range pool.Members {
				if tt.heaviest > 0 {
					pool.Members[i].Weight = 1 + r.IntN(tt.heaviest)
				}
			}
			if tt.heaviest > 0 {
				pool.Members[0].Weight = tt.heaviest
			}
			in := pool
			in.Members = pool.Members[:tt.members]
			var h history
			h.step(t, in, assign(t, in))
			for step := range tt.steps {
				changes := 1
				if step%5 == 0 {
					changes = 2 // may be a replacement
				}
				for range changes {
					in = toggle(in, pool.Members[1+r.IntN(len(pool.Members)-1)])
				}
				h.step(t, in, assign(t, in))
			}
			if h.others > 1 {
				t.Errorf("began anew %d times", h.others-1)
			}
			t.Attr("evaluator_repaired", fmt.Sprint(h.repaired))
		})
	}
}

// TestEvaluatorCrossesEvenShares goes through all small sizes, so that each
// remainder is come to from each side, by one member and by two.
func TestEvaluatorCrossesEvenShares(t *testing.T) {
	pool := randomGroup(3, 14, 60)
	repaired, others := 0, 0
	for partitions := range 60 {
		var h history
		in := allocfn.Input{Partitions: pool.Partitions[:1+partitions]}
		for _, n := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 12, 13, 11, 9, 10, 8, 7, 6, 5, 4, 3, 2, 1} {
			in.Members = pool.Members[:n]
			h.step(t, in, assign(t, in))
			in.Members = pool.Members[14-n:]
			h.step(t, in, assign(t, in))
		}
		repaired += h.repaired
		others += h.others
	}
	if repaired < others/2 {
		t.Errorf("repaired %d results of %d", repaired, repaired+others)
	}
	t.Attr("evaluator_repaired", fmt.Sprintf("%d of %d", repaired, repaired+others))
}

// TestEvaluatorOfSmallGroups takes many of them, for what happens rarely: that
// who has the last of the pool gives way to one of the same code, with five of
// the seeds.
func TestEvaluatorOfSmallGroups(t *testing.T) {
	repaired, others := 0, 0
	for seed := uint64(600); seed < 1_000; seed++ {
		r := rand.New(rand.NewPCG(seed, 7))
		pool := randomGroup(seed, 2+r.IntN(40), 1+r.IntN(300))
		if seed%3 == 0 {
			for i := range pool.Members {
				pool.Members[i].Weight = r.IntN(4)
			}
		}
		in := pool
		var h history
		for range 20 {
			h.step(t, in, assign(t, in))
			in = toggle(in, pool.Members[r.IntN(len(pool.Members))])
		}
		repaired += h.repaired
		others += h.others
	}
	if repaired < 2*others {
		t.Errorf("repaired %d results of %d", repaired, repaired+others)
	}
	t.Attr("evaluator_repaired", fmt.Sprintf("%d of %d", repaired, repaired+others))
}

// TestEvaluatorIsBrute compares with the definition, by way of strange names,
// weights and zones.
func TestEvaluatorIsBrute(t *testing.T) {
	repaired := 0
	rapid.Check(t, func(t *rapid.T) {
		in := drawGroup(t)
		if len(in.Members) == 0 || len(in.Partitions) == 0 {
			return
		}
		pool := in.Members
		if rapid.Bool().Draw(t, "no zones") {
			in.Zones = nil
		}
		var h history
		h.step(t, in, brute(in))
		for range rapid.IntRange(1, 5).Draw(t, "steps") {
			in = toggle(in, rapid.SampledFrom(pool).Draw(t, "member"))
			h.step(t, in, brute(in))
		}
		repaired += h.repaired
	})
	if repaired == 0 {
		t.Error("repaired nothing")
	}
}

// TestEvaluatorGivesUp lets it settle too little of a change.
func TestEvaluatorGivesUp(t *testing.T) {
	in := randomGroup(4, 50, 2_000)
	var e allocfn.Evaluator
	m := in.Members[7]
	for events := range 20 {
		in = toggle(in, m)
		got, err := e.AssignWithin(in, events)
		if err != nil || !slices.Equal(got, assign(t, in)) || e.Repaired() {
			t.Fatalf("%d events: repaired %v, %v", events, e.Repaired(), err)
		}
	}
	in = toggle(in, m)
	if got, err := e.Assign(in); err != nil || !slices.Equal(got, assign(t, in)) || !e.Repaired() {
		t.Errorf("afterwards: repaired %v, %v", e.Repaired(), err)
	}
}

// TestEvaluatorBreaksTies takes three members, two of which are equally far
// from a partition while the third is nearer, and lets that leave. The two have
// joined in either order, which must not matter.
func TestEvaluatorBreaksTies(t *testing.T) {
	distance := func(partition allocfn.Partition, member string) uint64 {
		least := uint64(math.MaxUint64)
		for v := uint64(0); v < 12; v += 2 {
			h := bruteMix(bruteHash(member) + v*brutePhi)
			for _, x := range []uint64{h >> 34, h % (1 << 32) >> 2} {
				for _, z := range bruteProbes(partition) {
					least = min(least, (x-z)%(1<<30), (z-x)%(1<<30))
				}
			}
		}
		return least
	}
	ties := 0
	for id := range int32(40) {
		in := allocfn.Input{Partitions: []allocfn.Partition{{Topic: "t", ID: id}}}
		seen := make(map[uint64]string)
		nearest := allocfn.Member{Name: "m0"}
		for i := range 4_000 {
			name := fmt.Sprint("m", i)
			d := distance(in.Partitions[0], name)
			if d < distance(in.Partitions[0], nearest.Name) {
				nearest.Name = name
			}
			other, found := seen[d]
			seen[d] = name
			if !found {
				continue
			}
			ties++
			two := []allocfn.Member{{Name: name}, {Name: other}}
			for trial := range 20 {
				// With others, that may be refused for the partition.
				in.Partitions = []allocfn.Partition{{Topic: "t", ID: id}}
				var h history
				in.Members = []allocfn.Member{nearest}
				h.step(t, in, assign(t, in))
				in = toggle(in, two[trial%2])
				h.step(t, in, assign(t, in))
				in = toggle(in, two[1-trial%2])
				h.step(t, in, assign(t, in))
				for i := range int32(trial % 4) {
					in.Partitions = append(in.Partitions, allocfn.Partition{Topic: "u", ID: 10*int32(trial) + i})
				}
				h.step(t, in, assign(t, in))
				in = toggle(toggle(in, allocfn.Member{Name: fmt.Sprint("x", trial)}), nearest)
				h.step(t, in, assign(t, in))
				if h.repaired < 3 {
					t.Fatalf("repaired %d results", h.repaired)
				}
			}
		}
	}
	if ties < 4 {
		t.Errorf("found %d ties", ties)
	}
	t.Attr("evaluator_ties", fmt.Sprint(ties))
}

// TestEvaluatorChecksWhatChanged gives it members that are not in order, or
// twice, or have negative weights, after others of which most are the same.
func TestEvaluatorChecksWhatChanged(t *testing.T) {
	in := randomGroup(3, 6, 100)
	var e allocfn.Evaluator
	if _, err := e.Assign(in); err != nil {
		t.Fatal(err)
	}
	bad := func(members ...allocfn.Member) {
		t.Helper()
		wrong := in
		wrong.Members = members
		want := wrong.Validate()
		if want == nil {
			t.Fatalf("%v is valid", members)
		}
		if _, err := e.Assign(wrong); !errors.Is(err, allocfn.ErrInput) || err.Error() != want.Error() {
			t.Errorf("%v: %v, want %v", members, err, want)
		}
		got, err := e.Assign(in)
		if err != nil || !slices.Equal(got, assign(t, in)) {
			t.Errorf("after %v: %v", members, err)
		}
	}
	for i := range in.Members {
		for k := range len(in.Members) + 1 {
			if k != i+1 { // not where it is in order
				bad(slices.Insert(slices.Clone(in.Members), k, in.Members[i])...)
			}
		}
		bad(slices.Insert(slices.Clone(in.Members), i, in.Members[i])...)
		if i > 0 {
			swapped := slices.Clone(in.Members)
			swapped[i-1], swapped[i] = swapped[i], swapped[i-1]
			bad(swapped...)
			bad(swapped[i-1 : i+1]...)
		}
		negative := slices.Clone(in.Members)
		negative[i].Weight = -1
		bad(negative...)
		bad(negative[i])
	}
}

// TestEvaluatorChecksOrder gives it partitions in an order that is right with
// their places in the set only, and then the same without.
func TestEvaluatorChecksOrder(t *testing.T) {
	in := randomGroup(1, 3, 10)
	in.Partitions, in.Places, _ = allocfn.ParseAll([]string{"t:+5", "t:1", "t:2"})
	var e allocfn.Evaluator
	for range 2 {
		if got, err := e.Assign(in); err != nil || !slices.Equal(got, assign(t, in)) {
			t.Fatalf("with places: %v", err)
		}
		without := in
		without.Places = nil
		if _, err := e.Assign(without); !errors.Is(err, allocfn.ErrInput) {
			t.Errorf("without places: %v", err)
		}
	}
}
