package recipe_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kielgo/kiel/recipe"
)

// TestBlockedErrorNamesWhatBlocks: the text has the path and what blocked the call, and the error wraps the cause.
func TestBlockedErrorNamesWhatBlocks(t *testing.T) {
	tests := map[string]recipe.BlockedError{
		`lock: /l: blocked by /l/x (identifier "a\n", 2 ahead): context canceled`:   {Recipe: "lock", Path: "/l", Blocker: "/l/x", Identifier: "a\n", Detail: "2 ahead"},
		`semaphore: /s: blocked by /s/x (identifier "", 3 taken): context canceled`: {Recipe: "semaphore", Path: "/s", Blocker: "/s/x", Detail: "3 taken"},
		`lock: /l: blocked by another call on this handle: context canceled`:        {Recipe: "lock", Path: "/l"},
		`barrier: /b: 1 of 3 members: context canceled`:                             {Recipe: "barrier", Path: "/b", Detail: "1 of 3 members"},
	}
	for want, err := range tests {
		err.Err = context.Canceled
		if got := err.Error(); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		if !errors.Is(&err, context.Canceled) {
			t.Errorf("%v does not wrap its cause", &err)
		}
	}
}
