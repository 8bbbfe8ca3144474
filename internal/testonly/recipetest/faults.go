package recipetest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// EndWithTheirContext checks calls without a connection. Each call returns when its context ends, with an error that wraps the
// cause and names the path. No such call was sent, so none is uncertain. The cause here is an error of another call; a call must
// neither return it as its own nor change it. EndWithTheirContext belongs in a bubble.
func EndWithTheirContext(tb testing.TB, path string, calls map[string]func(ctx context.Context) error) {
	tb.Helper()
	for what, call := range calls {
		why := &recipe.BlockedError{Recipe: "another", Path: "/another", Blocker: "/another/1", Err: errors.New("enough")}
		before := *why
		ctx, cancel := context.WithTimeoutCause(tb.Context(), time.Second, why)
		start := time.Now()
		err := call(ctx)
		if d := time.Since(start); d != time.Second {
			tb.Errorf("%s: returned after %v", what, d)
		}
		if !errors.Is(err, why) || errors.Is(err, session.ErrUncertain) || !strings.Contains(err.Error(), path) {
			tb.Errorf("%s: %v", what, err)
		}
		if err == error(why) || *why != before { //nolint:errorlint // err may wrap why, but must not be it
			tb.Errorf("%s: returned the error of another call, %v, or changed it from %v", what, err, &before)
		}
		cancel()
	}
}

// LoseTrust breaks a client's link until trust ends, and heals it before the session expires.
func LoseTrust(tb testing.TB, link *zktest.Client, inc *session.Incarnation) {
	tb.Helper()
	link.BlackHole(zktest.Both)
	<-inc.Context().Done()
	if cause := context.Cause(inc.Context()); !errors.Is(cause, session.ErrTrustLost) {
		tb.Fatalf("the incarnation ended with %v, not with ErrTrustLost", cause)
	}
	link.Heal()
}
