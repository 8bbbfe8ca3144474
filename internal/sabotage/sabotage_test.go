package sabotage_test

import (
	"context"
	"testing"

	"github.com/kielgo/kiel/internal/sabotage"
)

func TestRulesAddUp(t *testing.T) {
	ctx := sabotage.Off(sabotage.Off(t.Context(), sabotage.Claims), sabotage.GuardedRelease, sabotage.StuckLosesClaim)
	off := sabotage.Of(ctx)
	for r := sabotage.GuardedRelease; r <= sabotage.StuckLosesClaim; r++ {
		want := r == sabotage.Claims || r == sabotage.GuardedRelease || r == sabotage.StuckLosesClaim
		if off.Off(r) != want {
			t.Errorf("rule %d off: %v, want %v", r, !want, want)
		}
	}
	if sabotage.Of(t.Context()) != (sabotage.Rules{}) {
		t.Error("rules are off in a context that nobody touched")
	}
}

// Rules are asked for wherever one could be off, by everybody: it must cost nothing that anybody can notice.
func TestAskingAllocatesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	off := false
	if n := testing.AllocsPerRun(100, func() { off = off || sabotage.Of(ctx).Off(sabotage.Claims) }); n != 0 || off {
		t.Errorf("%v allocations, off: %v", n, off)
	}
}

// BenchmarkOf is what a rule costs that is not off, under contexts within contexts.
func BenchmarkOf(b *testing.B) {
	outer, cancel := context.WithCancel(b.Context())
	defer cancel()
	middle, cancel := context.WithCancel(outer)
	defer cancel()
	inner, cancel := context.WithCancel(context.WithoutCancel(middle))
	defer cancel()
	for b.Loop() {
		if sabotage.Of(inner).Off(sabotage.Claims) {
			b.Fatal("off")
		}
	}
}
