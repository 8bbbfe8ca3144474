package recipetest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// A call that ends for another reason, at another time, or that does not say where, is found.
func TestEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits := func(ctx context.Context) error { <-ctx.Done(); return nil }
		for name, tt := range map[string]struct {
			call   func(ctx context.Context) error
			failed bool
		}{
			"good": {call: func(ctx context.Context) error {
				waits(ctx)
				return fmt.Errorf("/p: %w", context.Cause(ctx))
			}},
			"at once": {failed: true, call: func(ctx context.Context) error {
				ended, cancel := context.WithCancelCause(ctx)
				cancel(errors.New("enough"))
				return fmt.Errorf("/p: %w", context.Cause(ended))
			}},
			"no path":   {failed: true, call: func(ctx context.Context) error { waits(ctx); return context.Cause(ctx) }},
			"no reason": {failed: true, call: func(ctx context.Context) error { waits(ctx); return errors.New("/p") }},
			"another's, changed": {failed: true, call: func(ctx context.Context) error {
				waits(ctx)
				if why, ok := errors.AsType[*recipe.BlockedError](context.Cause(ctx)); ok {
					why.Path = "/p"
				}
				return fmt.Errorf("/p: %w", context.Cause(ctx))
			}},
			"no error": {failed: true, call: waits},
			"uncertain": {failed: true, call: func(ctx context.Context) error {
				waits(ctx)
				return fmt.Errorf("/p: %w: %w", context.Cause(ctx), session.ErrUncertain)
			}},
		} {
			noted := &noting{TB: t}
			recipetest.EndWithTheirContext(noted, "/p", map[string]func(context.Context) error{name: tt.call})
			if noted.failed != tt.failed {
				t.Errorf("%s failed: %v", name, noted.failed)
			}
		}
	})
}

// Trust is lost, and the session lives on.
func TestLoseTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, nw := zktest.StartVirtual(t, zktest.Options{})
		s := recipetest.Session(t, nw, "a")
		id := recipetest.ID(t, s)
		inc, err := s.Incarnation(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		recipetest.LoseTrust(t, nw.Client("a"), inc)
		if inc.Trusted() || recipetest.ID(t, s) != id {
			t.Errorf("trusted: %v, id %#x, want %#x", inc.Trusted(), recipetest.ID(t, s), id)
		}
	})
}
