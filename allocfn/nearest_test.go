package allocfn

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestBestOpen holds the search of Balanced to the one that looks at the points one by one, in classes that are as wide as they
// may be, and with members that are full.
func TestBestOpen(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 14))
		heaviest := []int{2, 100, 100_000, math.MaxInt32}[seed%4]
		members := []Member{{Weight: heaviest}, {Weight: 1}} // so that not all are equal
		names, left := []uint64{1, 2}, []int32{0, 1}
		for range r.IntN(1 + r.IntN(300)) {
			members = append(members, Member{Weight: 1 + r.IntN(heaviest)>>r.IntN(20)})
			names, left = append(names, r.Uint64()), append(left, r.Int32N(3))
		}
		s := newScale(members)
		for range 50 {
			key, want, got := r.Uint64(), unsuited(), unsuited()
			for class, f := range newFields(pointsOf(names), s, nil, 1)[nowhere] {
				want = s.nearest(f.ring, key, class, want, func(m int32) bool { return left[m] > 0 })
				got = s.bestOpen(f.ring, key, class, got, left)
			}
			if got != want {
				t.Fatalf("seed %d, %d members: got %v, want %v", seed, len(members), got, want)
			}
		}
	}
}
