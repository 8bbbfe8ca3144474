package zones_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/internal/zones"
	"github.com/kielgo/kiel/session"
)

// On a context that never ends Zones run until their session ends.
func TestRunOnEndlessContext(t *testing.T) {
	recipetest.OnEndless(t, func(ctx context.Context, e *recipetest.Endless) {
		z, err := zones.New(e.Session, "/parent", "zones")
		if err != nil {
			e.Fatal(err)
		}
		err = e.GoesOn(func() error { return z.Run(ctx) }, func() {
			if err := e.Server.Create("/parent/zones", []byte(`{"v":1,"zones":["a"],"topics":{"t":[0]}}`)); err != nil {
				e.Error(err)
			}
			if err := z.Refresh(ctx); err != nil || z.View().Err != nil || len(z.View().Zones) != 1 {
				e.Errorf("Refresh: %v, view %+v", err, z.View())
			}
			e.Close(ctx)
		})
		if !errors.Is(err, session.ErrClosed) {
			e.Errorf("Run: %v, want %v", err, session.ErrClosed)
		}
	})
}
