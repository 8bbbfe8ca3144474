package sabotage_test

import (
	"testing"

	"github.com/kielgo/kiel/internal/sabotage"
)

func TestRulesAddUp(t *testing.T) {
	ctx := sabotage.Off(sabotage.Off(t.Context(), sabotage.Claims), sabotage.HandshakeCap, sabotage.ByCzxid)
	off := sabotage.Of(ctx)
	for r := sabotage.HandshakeCap; r <= sabotage.ByCzxid; r++ {
		want := r == sabotage.Claims || r == sabotage.HandshakeCap || r == sabotage.ByCzxid
		if off.Off(r) != want {
			t.Errorf("rule %d off: %v, want %v", r, !want, want)
		}
	}
	if sabotage.Of(t.Context()) != 0 {
		t.Error("rules are off in a context that nobody touched")
	}
}
