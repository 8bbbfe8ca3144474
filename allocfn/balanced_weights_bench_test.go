package allocfn_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kielgo/kiel/allocfn"
)

// BenchmarkBalancedWeights measures Balanced with equal weights and with others of the kinds that people give.
func BenchmarkBalancedWeights(b *testing.B) {
	kinds := []struct {
		name   string
		weight func(r *rand.Rand) int
	}{
		{"equal", func(*rand.Rand) int { return 1 }},
		{"one and two", func(r *rand.Rand) int { return 1 + r.IntN(2) }},
		{"percent", func(r *rand.Rand) int { return 50 + r.IntN(151) }},
		{"1 to 64", func(r *rand.Rand) int { return 1 + r.IntN(64) }},
		{"millicores", func(r *rand.Rand) int { return []int{250, 500, 1_000, 2_000, 4_000, 16_000}[r.IntN(6)] }},
		{"any size", func(r *rand.Rand) int { return 1 << r.IntN(20) }},
	}
	for _, s := range [][2]int{{10, 1_000}, {100, 1_000}, {1_000, 10_000}, {1_000, 100_000}} {
		for _, k := range kinds {
			b.Run(fmt.Sprintf("%dx%d/%s", s[0], s[1], k.name), func(b *testing.B) {
				in, _ := shape(s[0], s[1])
				r := rand.New(rand.NewPCG(1, 11))
				for m := range in.Members {
					in.Members[m].Weight = k.weight(r)
				}
				for b.Loop() {
					if _, err := allocfn.Balanced().Assign(in); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
