package allocfn

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// TestSharesOf compares with arithmetic that has no limits.
func TestSharesOf(t *testing.T) {
	for seed := range uint64(10_000) {
		r := rand.New(rand.NewPCG(seed, 21))
		s := shares{members: 2, sum: 1 + r.Uint64()>>r.IntN(64)}
		if s.sum == 0 {
			s.sum = math.MaxUint64
		}
		s.weights = []uint64{r.Uint64N(s.sum), 0}
		s.weights[1] = s.sum - s.weights[0]
		for m, weight := range s.weights {
			n := r.Int32() >> r.IntN(31)
			product := new(big.Int).Mul(big.NewInt(int64(n)), new(big.Int).SetUint64(weight))
			whole, rest := new(big.Int).DivMod(product, new(big.Int).SetUint64(s.sum), new(big.Int))
			if w, left := s.of(int32(m), int(n)); uint64(w) != whole.Uint64() || left != rest.Uint64() {
				t.Fatalf("%d of %d partitions, sum %d: got %d and %d, want %v and %v", weight, n, s.sum, w, left, whole, rest)
			}
		}
	}
}

func TestLighter(t *testing.T) {
	heavy := make([]Member, 20_000)
	for m := range heavy {
		heavy[m].Weight = math.MaxInt32
	}
	heavy[7].Weight = 1
	if got := lighter(heavy[:8_192], 1<<20); &got[0] != &heavy[0] {
		t.Error("halved weights for no reason")
	}
	got := lighter(heavy, 1<<21)
	if got[0].Weight != math.MaxInt32/8 || got[7].Weight != 1 || heavy[0].Weight != math.MaxInt32 {
		t.Errorf("got weights %d and %d, and %d in place", got[0].Weight, got[7].Weight, heavy[0].Weight)
	}
}
