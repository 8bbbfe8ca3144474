// Package endless gives tests the contexts that never end. The Done channel of such a context is nil; code that waits for its end
// must not take that for the end. Only tests import this package.
package endless

import (
	"context"
	"testing"
)

// Contexts returns one context of each kind that never ends, by name.
func Contexts(tb testing.TB) map[string]context.Context {
	tb.Helper()
	return map[string]context.Context{
		"Background":    context.Background(), //nolint:forbidigo // what the tests are about
		"TODO":          context.TODO(),       //nolint:forbidigo // what the tests are about
		"WithoutCancel": context.WithoutCancel(tb.Context()),
	}
}
