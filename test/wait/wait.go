// Package wait lets tests wait: for a condition, or, where there is none, for time itself.
package wait

import (
	"testing"
	"time"
)

// every is how often a condition is looked at.
const every = 20 * time.Millisecond

// Until waits until ok is true. It ends the test when that takes longer than limit, with what describe says then, so it belongs
// on the test's goroutine.
func Until(tb testing.TB, limit time.Duration, ok func() bool, describe func() string) {
	tb.Helper()
	deadline := time.Now().Add(limit)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			tb.Fatalf("not within %v: %s", limit, describe())
		}
		select {
		case <-ticker.C:
		case <-tb.Context().Done():
			tb.Fatalf("interrupted: %s", describe())
		}
	}
}

// Pass lets time pass, at least d unless the test ends. It is for what only time can bring about, which the caller names: a
// session that must grow old, a server that must have been down for a while, a moment in which a race could be lost. To wait for
// something to happen is [Until]'s work.
func Pass(tb testing.TB, d time.Duration) {
	tb.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-tb.Context().Done():
	}
}
