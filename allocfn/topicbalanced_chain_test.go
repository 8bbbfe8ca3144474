package allocfn

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
)

// sums returns all totals that members of such weights can come to with topics
// of such sizes, each of them in bounds.
func sums(weights, sizes []int) map[[6]int32]bool {
	var shares []uint64
	for _, w := range weights {
		shares = append(shares, uint64(w))
	}
	reached := map[[6]int32]bool{{}: true}
	for _, size := range sizes {
		room := bruteShares(shares, size, false)
		next := make(map[[6]int32]bool)
		var choose func(sum [6]int32, m, pool int)
		choose = func(sum [6]int32, m, pool int) {
			if m == len(weights) {
				if pool == 0 {
					next[sum] = true
				}
				return
			}
			sum[m] += int32(room.base[m])
			choose(sum, m+1, pool)
			if room.more[m] && pool > 0 {
				sum[m]++
				choose(sum, m+1, pool-1)
			}
		}
		for sum := range reached {
			choose(sum, 0, room.pool)
		}
		reached = next
	}
	return reached
}

// TestTopicBalancedTotals compares with all that is possible: the totals are
// those of Balanced whenever any assignment with the bounds of topics has these.
func TestTopicBalancedTotals(t *testing.T) {
	stuck, rest, free := 0, 0, 0
	attempt := func(seed uint64, weights, sizes []int) {
		result := try(t, rand.New(rand.NewPCG(seed, 1)), weights, sizes)
		stuck += result.stuck
		rest += result.rest
		all := sums(weights, sizes)
		var got [6]int32
		copy(got[:], result.total)
		if !all[got] {
			t.Fatalf("seed %d: weights %v, topics of %v: totals %v are not possible", seed, weights, sizes, got)
		}
		if !result.free {
			return
		}
		free++
		var shares []uint64
		partitions := 0
		for _, w := range weights {
			shares = append(shares, uint64(w))
		}
		for _, size := range sizes {
			partitions += size
		}
		want := bruteShares(shares, partitions, true)
		for sum := range all {
			fits := true
			for m := range weights {
				has := int(sum[m])
				fits = fits && (has == want.base[m] || want.more[m] && has == want.base[m]+1)
			}
			if fits {
				t.Fatalf("seed %d: weights %v, topics of %v: got %v where %v is possible", seed, weights, sizes, got, sum)
			}
		}
	}
	// Members of weight 3 have exactly one of the four, and one of those alone
	// can have one more of the six; the largest remainders are the others'.
	attempt(0, []int{3, 2, 2, 3, 2}, []int{6, 4})
	if free != 1 {
		t.Errorf("the totals are those by largest remainder where these are not possible")
	}
	for seed := range uint64(12_000) {
		r := rand.New(rand.NewPCG(seed, 2))
		var weights, sizes []int
		heaviest := []int{2, 3, 7, 100}[r.IntN(4)]
		for range 2 + r.IntN(5) {
			weights = append(weights, 1+r.IntN(heaviest))
		}
		for range 1 + r.IntN(4) {
			sizes = append(sizes, 1+r.IntN([]int{3, 8, 20}[r.IntN(3)]))
		}
		switch seed % 4 {
		case 0:
			weights[0] = math.MaxInt32
		case 1: // topics of which some have a whole share
			sum := 0
			for m := range weights {
				weights[m] = 1 + weights[m]%7
				sum += weights[m]
			}
			for k := range sizes {
				for w := weights[r.IntN(len(weights))]; sizes[k]*w%sum != 0; {
					sizes[k]++
				}
			}
		}
		attempt(seed, weights, sizes)
	}
	t.Attr("stuck", strconv.Itoa(stuck))
	t.Attr("chains", strconv.Itoa(rest))
	t.Attr("other_totals", strconv.Itoa(free))
	if stuck < 400 || rest < 30 || free < 5 {
		t.Errorf("%d were stuck, %d needed chains, %d times other totals: hardly tried", stuck, rest, free)
	}
}

// TestTopicBalancedChains tries larger groups of many weights.
func TestTopicBalancedChains(t *testing.T) {
	rest := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 3))
		n := []int{10, 30, 65, 130}[seed%4]
		weights := make([]int, n)
		for m := range weights {
			weights[m] = []int{1 + r.IntN(100), 1 + r.IntN(3), 1 + int(r.Uint32()>>r.IntN(32)/2)}[seed%3]
		}
		for _, sizes := range [][]int{
			slices.Repeat([]int{n - 1}, 12), slices.Repeat([]int{n/2 + 1}, 2*n/3), slices.Repeat([]int{2*n - 1, 1}, 3),
			append(slices.Repeat([]int{2}, n), slices.Repeat([]int{n/8 + 9}, 9)...),
		} {
			rest += try(t, r, weights, sizes).rest
		}
	}
	t.Attr("chains", strconv.Itoa(rest))
	if rest < 20 {
		t.Errorf("only %d partitions needed chains", rest)
	}
}
