package errlog_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/errlog"
)

// An ERROR line of a kind must have its "recovered" at Info, though a Debug line came after it.
func TestRecoveredAfterErrorThenDebug(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := errlog.New(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo})))
		l.Failed("member", "", errors.New("stuck"))
		time.Sleep(11 * time.Second)
		l.FailedDebug("member", "", errors.New("refused"))
		time.Sleep(time.Minute)
		l.OK("member", "")
		if !strings.Contains(out.String(), "recovered") {
			t.Errorf("no recovered:\n%s", out.String())
		}
	})
}

// A kind whose lines were all at Debug has no "recovered" at Info, nor when its line was postponed.
func TestPostponedDebugRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := errlog.New(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo})))
		for range 5 {
			l.FailedDebug("member", "", errors.New("refused"))
			l.OK("member", "")
		}
		time.Sleep(11 * time.Second)
		l.OK("member", "")
		if out.Len() > 0 {
			t.Errorf("%s", out.String())
		}
	})
}
