package hold_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kielgo/kiel/internal/hold"
	"github.com/kielgo/kiel/recipe"
)

// TestWrap wraps the error of an inner lock as a lease does.
func TestWrap(t *testing.T) {
	cause := errors.New("refused")
	ctx, end := context.WithCancelCause(t.Context())
	inner := hold.Wrap(ctx, "lock", "acquire", "/l/lock", cause)
	blocked := &recipe.BlockedError{Recipe: "lock", Path: "/l/lock", Blocker: "/l/lock/a", Err: cause}
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"an error", cause, "lease: obtain /l: refused"},
		{"the inner recipe's", inner, "lease: obtain /l: refused"},
		{"an error that wraps another recipe's", errors.Join(inner), "lease: obtain /l: acquire /l/lock: refused"},
		{"blocked", blocked, `lease: /l: blocked by /l/lock/a (identifier ""): refused`},
	} {
		err := hold.Wrap(ctx, "lease", "obtain", "/l", c.err)
		if err.Error() != c.want || !errors.Is(err, cause) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	if blocked.Recipe != "lock" || blocked.Path != "/l/lock" {
		t.Errorf("the inner error was changed: %v", blocked)
	}

	end(inner) // the error of another recipe's hold, under which the lease is obtained
	err := hold.Wrap(ctx, "lease", "obtain", "/l", context.Cause(ctx))
	if want := "lease: obtain /l: acquire /l/lock: refused"; err.Error() != want {
		t.Errorf("the cause of the caller's context: %v, want %s", err, want)
	}
}
