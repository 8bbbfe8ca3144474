package clocks_test

import (
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/clocks"
)

func TestOf(t *testing.T) {
	if clocks.Of(t.Context()) != nil {
		t.Error("a context without a clock has one")
	}
	ctx := clocks.With(t.Context(), func() (mono, wall time.Duration) { return 1, 2 })
	if mono, wall := clocks.Of(ctx)(); mono != 1 || wall != 2 {
		t.Errorf("the clock shows %v, %v", mono, wall)
	}
}
