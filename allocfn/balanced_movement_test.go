package allocfn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// movement is what one change of the members of one group cost.
type movement struct {
	moved, least int
}

func (m movement) ratio() float64 { return float64(m.moved) / float64(max(m.least, 1)) }

// without returns in without a member.
func without(in allocfn.Input, member int) allocfn.Input {
	in.Members = slices.Delete(slices.Clone(in.Members), member, member+1)
	return in
}

// change compares the assignments before and after the members of a group changed. least is how many partitions any function with
// equal shares would have moved at least: of what a member has, those that stay are at most its new quota, and one more for as
// many members as may have one more.
func change(before allocfn.Input, a allocfn.Assignment, after allocfn.Input, b allocfn.Assignment) movement {
	loads := make(map[string]int)
	stayed := 0
	for i := range a {
		name := before.Members[a[i]].Name
		loads[name]++
		if name == after.Members[b[i]].Name {
			stayed++
		}
	}
	q, extras := len(b)/len(after.Members), len(b)%len(after.Members)
	keep := 0
	for _, m := range after.Members {
		load := loads[m.Name]
		keep += min(load, q)
		if load > q && extras > 0 {
			keep++
			extras--
		}
	}
	return movement{len(a) - stayed, len(a) - keep}
}

func assign(tb testing.TB, in allocfn.Input) allocfn.Assignment {
	tb.Helper()
	a, err := allocfn.Balanced().Assign(in)
	noerr.Must(tb, err)
	return a
}

// joinAndLeave makes a group of n members from a seed and returns what it costs that one more joins and that one of the n leaves.
func joinAndLeave(tb testing.TB, seed uint64, n, p int) (join, leave movement) {
	tb.Helper()
	more := randomGroup(seed, n+1, p)
	r := rand.New(rand.NewPCG(seed, 3))
	in := without(more, r.IntN(n+1))
	fewer := without(in, r.IntN(n))
	a := assign(tb, in)
	join, leave = change(in, a, more, assign(tb, more)), change(in, a, fewer, assign(tb, fewer))
	// Who comes back under the name he had finds what he had.
	if again := assign(tb, in); !slices.Equal(again, a) {
		tb.Fatalf("seed %d: back to the same members, but got %v, want %v", seed, again, a)
	}
	return join, leave
}

// movementFactor is what doc.go says of up to 300 partitions per member.
const movementFactor = 2.5

// excess returns how many more partitions moved than had to, in roots of their number, and complains of more than movementFactor
// of those.
func (m movement) excess(tb testing.TB, seed uint64, members, partitions int) float64 {
	tb.Helper()
	if m.moved < m.least {
		tb.Fatalf("seed %d: moved %d, at least %d must", seed, m.moved, m.least)
	}
	excess := float64(m.moved-m.least) / math.Sqrt(float64(partitions))
	if excess > movementFactor {
		tb.Errorf("seed %d: %d × %d: moved %d, lower bound %d", seed, members, partitions, m.moved, m.least)
	}
	return excess
}

// TestBalancedMovesLittle holds every join and leave to the lower bound and c roots of the number of partitions, at sizes on both
// sides of P mod N = 0, N being the number of members before or after.
func TestBalancedMovesLittle(t *testing.T) {
	worst, sum, n := 0.0, 0.0, 0
	evenJoins, evenLeaves := 0, 0
	for seed := range uint64(4_000) {
		r := rand.New(rand.NewPCG(seed, 4))
		members, each := 2+r.IntN(30), r.IntN(1+r.IntN(20))
		if seed%10 == 0 {
			each = r.IntN(300)
		}
		partitions := max(1, (members+int(seed%3)-1)*each+r.IntN(3)-1)
		if partitions%members == 0 || partitions%(members+1) == 0 {
			evenJoins++
		}
		if partitions%members == 0 || partitions%(members-1) == 0 {
			evenLeaves++
		}
		join, leave := joinAndLeave(t, seed, members, partitions)
		for _, m := range []movement{join, leave} {
			excess := m.excess(t, seed, members, partitions)
			worst, sum, n = max(worst, excess), sum+excess, n+1
		}
	}
	t.Attr("excess_mean_in_roots", fmt.Sprintf("%.2f", sum/float64(n)))
	t.Attr("excess_worst_in_roots", fmt.Sprintf("%.2f", worst))
	t.Attr("without_rest", fmt.Sprintf("%d joins, %d leaves", evenJoins, evenLeaves))
	if evenJoins < 1_000 || evenLeaves < 1_000 {
		t.Errorf("only %d joins and %d leaves cross a size without a rest", evenJoins, evenLeaves)
	}
}

// ratios measures joins and leaves over seeds, as moved over lower bound.
type ratios struct{ join, leave, joinWorst, leaveWorst, excess float64 }

func (r *ratios) measure(tb testing.TB, seeds, n, p int) {
	tb.Helper()
	for seed := range uint64(seeds) {
		join, leave := joinAndLeave(tb, 1000+seed, n, p)
		r.join += join.ratio() / float64(seeds)
		r.leave += leave.ratio() / float64(seeds)
		r.joinWorst = max(r.joinWorst, join.ratio())
		r.leaveWorst = max(r.leaveWorst, leave.ratio())
		r.excess = max(r.excess, join.excess(tb, 1000+seed, n, p), leave.excess(tb, 1000+seed, n, p))
	}
}

func TestBalancedMovement(t *testing.T) {
	for _, s := range []struct {
		members, partitions, seeds int
		join, leave                float64
	}{
		{10, 1_000, 200, 1.25, 1.22},
		{100, 10_000, 400, 1.9, 1.9}, // 1.897 and 1.896 over 800 seeds
	} {
		t.Run(fmt.Sprintf("%dx%d", s.members, s.partitions), func(t *testing.T) {
			var r ratios
			r.measure(t, s.seeds, s.members, s.partitions)
			t.Attr("join", fmt.Sprintf("%.3f, worst %.2f", r.join, r.joinWorst))
			t.Attr("leave", fmt.Sprintf("%.3f, worst %.2f", r.leave, r.leaveWorst))
			t.Attr("excess_worst_in_roots", fmt.Sprintf("%.2f", r.excess))
			if r.join > s.join || r.leave > s.leave {
				t.Errorf("moved %.3f and %.3f times the lower bound, want %.2f and %.2f", r.join, r.leave, s.join, s.leave)
			}
		})
	}
}
