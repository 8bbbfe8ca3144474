package allocfn

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/kielgo/kiel"
)

// sums returns all totals that members of such weights can come to with topics of such sizes, each of them in bounds.
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

// checkFree checks that none of the possible totals is one by largest remainder.
func checkFree(t *testing.T, seed uint64, weights, sizes []int, possible map[[6]int32]bool) {
	t.Helper()
	var shares []uint64
	partitions := 0
	for _, w := range weights {
		shares = append(shares, uint64(w))
	}
	for _, size := range sizes {
		partitions += size
	}
	want := bruteShares(shares, partitions, true)
	for sum := range possible {
		fits := true
		for m := range weights {
			has := int(sum[m])
			fits = fits && (has == want.base[m] || want.more[m] && has == want.base[m]+1)
		}
		if fits {
			t.Fatalf("seed %d: weights %v, topics of %v: %v is possible", seed, weights, sizes, sum)
		}
	}
}

// TestTopicBalancedTotals compares with all that is possible: the totals are those of Balanced whenever any assignment with the
// bounds of topics has these.
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
		checkFree(t, seed, weights, sizes, all)
	}
	// Members of weight 3 have exactly one of the four, and one of those alone can have one more of the six; the largest
	// remainders are the others'.
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

// TestChainsFromAnywhere lets chains place what is left after others were placed by chance. They must find a way whatever those
// are, and go by the totals of Balanced unless nothing else is possible.
func TestChainsFromAnywhere(t *testing.T) {
	links, free := 0, 0
	for seed := range uint64(10_000) {
		r := rand.New(rand.NewPCG(seed, 5))
		weights, sizes := []int{3, 2, 2, 3, 2}, make([]int, 4+r.IntN(3))
		for k := range sizes { // shares with a rest have those of weight 3 alone, or those of weight 2
			sizes[k] = []int{6, 18, 4, 8, 16, 20}[r.IntN(6)]
		}
		if seed%4 < 2 {
			weights, sizes = make([]int, 2+r.IntN(5)), make([]int, 1+r.IntN(4))
			for m := range weights {
				weights[m] = 1 + r.IntN(4)
			}
			for k := range sizes {
				sizes[k] = 1 + r.IntN(12)
			}
		}
		in := Input{}
		var shares []uint64
		for m, w := range weights {
			shares = append(shares, uint64(w))
			in.Members = append(in.Members, Member{Name: strconv.Itoa(m), Weight: w})
		}
		var rooms []*bruteRoom
		for k, size := range sizes {
			rooms = append(rooms, bruteShares(shares, size, false))
			for id := range size {
				in.Partitions = append(in.Partitions, kiel.Partition{Topic: strconv.Itoa(k), ID: int32(id)})
			}
		}
		anyTotals := seed%2 == 0
		total := bruteShares(shares, len(in.Partitions), !anyTotals)
		keys := make([]uint64, len(in.Partitions))
		g := newTopicMatching(in, keys, pointsOf(make([]uint64, len(weights))), allotmentByWeight(in))
		var left []int32
		for _, u := range r.Perm(len(keys)) {
			room := rooms[g.topics.of[u]]
			m := slices.IndexFunc(r.Perm(len(weights)), func(m int) bool { return room.allowed(m) && total.allowed(m) })
			if m < 0 || r.IntN(8) == 0 {
				left = append(left, int32(u))
				continue
			}
			for m = r.IntN(len(weights)); !room.allowed(m) || !total.allowed(m); {
				m = (m + 1) % len(weights)
			}
			room.take(m)
			total.take(m)
			g.topics.change(g.topics.of[u], int32(m), 1)
			g.owner[u] = int32(m)
		}
		c := newChains(allotmentByWeight(in), g, g.held())
		if anyTotals {
			c.release()
		}
		c.link(left)
		checkEven(t, in, g, c.free)
		for m, held := range g.held() {
			if len(held) != int(c.load[m]) || len(c.held[m]) != len(held) {
				t.Fatalf("seed %d: member %d has %v, counted %d and %v", seed, m, held, c.load[m], c.held[m])
			}
		}
		links += len(left)
		if c.free && !anyTotals {
			free++
			checkFree(t, seed, weights, sizes, sums(weights, sizes))
		}
	}
	t.Attr("links", strconv.Itoa(links))
	t.Attr("other_totals", strconv.Itoa(free))
	if links < 10_000 || free == 0 {
		t.Error("hardly tried")
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
