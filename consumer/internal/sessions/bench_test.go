package sessions_test

import (
	"testing"

	. "github.com/kielgo/kiel/consumer/internal/sessions"
)

// BenchmarkManyPartitions has a member claim 10,000 partitions and leave. What comes for each of them comes one after the other.
func BenchmarkManyPartitions(b *testing.B) {
	const n = 10_000
	for name, kind := range map[string]Kind{"eager": {Eager: true}, "incremental": {}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				var s State
				step := func(in Input) {
					s.Step(in)
					for w := WaitOver; w <= BackOver; w++ {
						s.Waits(w)
					}
				}
				each := func(what What) {
					for p := range n {
						step(Input{What: what, P: p})
					}
				}
				mine := make([]int, n)
				for p := range mine {
					mine[p] = p
				}
				step(Input{What: Consume, Kind: kind})
				step(Input{What: Plan, Mine: mine})
				each(Claimed)
				step(Input{What: SetupReturned})
				step(Input{What: Stop})
				each(Returned)
				step(Input{What: CleanupReturned}) // of an eager session
				each(Committed)
				step(Input{What: CleanupReturned})
				each(WasRevoked)
				if s.Phase != Out {
					b.Fatalf("phase %d", s.Phase)
				}
			}
		})
	}
}
