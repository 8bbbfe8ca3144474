package servers

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestServersThatDoNotStart shows that a start that takes too long is no verdict and is tried again, and what is not.
func TestServersThatDoNotStart(t *testing.T) {
	p := Start(t, "sleep", exec.Command("sleep", "600"))
	never := func() (bool, error) { return false, nil }
	err := pollFor(t, p, 50*time.Millisecond, never)
	if !errors.Is(err, errNotStarted) || !strings.Contains(err.Error(), "sleep is not ready after 50ms") {
		t.Errorf("a start that takes too long: %v", err)
	}
	for try, want := range map[int]bool{1: true, slowTries: false} {
		if got := again(try, err, false); got != want {
			t.Errorf("after try %d that took too long it is started again: %v, want %v", try, got, want)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := pollFor(ending{t, ctx}, p, time.Hour, never); errors.Is(err, errNotStarted) {
		t.Errorf("the test was interrupted: %v", err)
	}
	own := errors.New("a server that is not ours")
	err = pollFor(t, p, time.Hour, func() (bool, error) { return false, own })
	if !errors.Is(err, own) || again(1, err, false) || !again(1, err, true) || again(clashTries, err, true) {
		t.Errorf("somebody else's answer: %v", err)
	}
	p.Kill()
	err = pollFor(t, p, time.Hour, never)
	if err == nil || errors.Is(err, errNotStarted) || again(1, err, false) {
		t.Errorf("a server that ended while it started: %v", err)
	}
}

// ending is a test with another context.
type ending struct {
	testing.TB
	ctx context.Context
}

func (e ending) Context() context.Context { return e.ctx }
