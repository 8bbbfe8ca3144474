package allocfn_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// BenchmarkTopicBalanced measures it with equal weights, with random ones, and with one member that weighs as much as all others.
func BenchmarkTopicBalanced(b *testing.B) {
	f := allocfn.TopicBalanced()
	for _, s := range []struct{ members, partitions, size int }{
		{100, 10_000, 100}, {1_000, 10_000, 100}, {2_000, 100_000, 100}, {2_000, 100_000, 2_000}, {2_000, 100_000, 1_990}, {2_000, 100_000, 10},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		for _, way := range []struct {
			name   string
			weight func(member int) int
		}{
			{"equal", func(int) int { return 0 }},
			{"random", func(int) int { return 1 + r.IntN(100) }},
			{"wide", func(int) int { return 1 + int(r.Uint32()>>r.IntN(32))/2 }},
			{"one", func(m int) int { return 1 + max(0, s.members*(1-m)) }},
		} {
			b.Run(fmt.Sprintf("%dx%d/%d/%s", s.members, s.partitions, s.size, way.name), func(b *testing.B) {
				in := groupOf(randomNames(r, s.members), topicsOf(s.partitions, s.size)...)
				for m := range in.Members {
					in.Members[m].Weight = way.weight(m)
				}
				b.ReportAllocs()
				for b.Loop() {
					noerr.Last(b)(allocfn.Call(f, in))
				}
			})
		}
	}
}
