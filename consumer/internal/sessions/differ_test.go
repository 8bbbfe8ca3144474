package sessions_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/kielgo/kiel/consumer/internal/sessions"
)

// Step, which looks at one partition where that is enough, does what it would do if it looked at all, also when inputs come that
// no caller gives.
func TestStepLooksAtAllThatMayHaveChanged(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 3000 {
		var s State
		var done []Input
		for range 60 {
			in := Input{What: What(r.IntN(int(BackOver) + 1)), P: r.IntN(6)}
			if r.IntN(3) == 0 {
				in.What = []What{Claimed, SetupReturned, Returned, Committed}[r.IntN(4)]
			}
			switch in.What {
			case Plan:
				in.P = 0
				in.Mine = r.Perm(8)[:r.IntN(8)]
			case Consume:
				if s.Phase != Between {
					continue
				}
				in.Kind = Kind{Eager: r.IntN(2) == 0, Run: r.IntN(2) == 0, Hold: r.IntN(2) == 0}
				in.Kind.Run = in.Kind.Run && !in.Kind.Eager
			case Stop, Ended, IdleOver, AllOver:
				if r.IntN(4) != 0 {
					continue
				}
			default:
			}
			done = append(done, in)
			all := Of(s.Head, slices.Clone(s.Parts))
			got, want := s.Step(in), all.StepAll(in)
			if !EqualActions(got, want) || !s.Equal(&all) {
				t.Fatalf("after %v:\n%v %+v\nlooking at all:\n%v %+v", done, got, s, want, all)
			}
			if s.Phase == Out {
				break
			}
		}
	}
}
