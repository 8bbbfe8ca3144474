package party_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
)

// On a context that never ends a Party runs until its session ends.
func TestRunOnEndlessContext(t *testing.T) {
	recipetest.OnEndless(t, func(ctx context.Context, e *recipetest.Endless) {
		const path = "/members"
		p, err := party.New(e.Session, path, party.Options{Name: "a"})
		noerr.Must(e, err)
		err = e.GoesOn(func() error { return p.Run(ctx) }, func() {
			if names := e.Server.Children(path); len(names) != 1 || p.View() == nil || len(p.View().Members) != 1 {
				e.Errorf("children %q, view %+v", names, p.View())
			}
			if err := p.Leave(ctx); err != nil || len(e.Server.Children(path)) != 0 {
				e.Errorf("Leave: %v, children %q", err, e.Server.Children(path))
			}
			e.Close(ctx)
		})
		if !errors.Is(err, session.ErrClosed) {
			e.Errorf("Run: %v, want %v", err, session.ErrClosed)
		}
	})
}
