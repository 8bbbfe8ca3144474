package defaultlog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"testing/slogtest"

	"github.com/kielgo/kiel/internal/defaultlog"
	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

func TestOr(t *testing.T) {
	given := slog.New(slog.DiscardHandler)
	if defaultlog.Or(given) != given {
		t.Error("a Logger that is given is replaced")
	}
	before := logtest.Capture(t)
	plain := defaultlog.Or(nil)
	derived := plain.With("a", 1).WithGroup("g").With("b", 2)
	say := func(l *slog.Logger) {
		l.Debug("debug")
		l.Info("info")
		l.Warn("warn", "c", 3)
		l.Error("error")
	}
	say(plain)
	say(derived)
	after := logtest.Capture(t)
	say(derived)
	slog.SetDefault(slog.New(slog.DiscardHandler))
	say(derived)

	lines := "level=WARN msg=warn a=1 g.b=2 g.c=3\nlevel=ERROR msg=error a=1 g.b=2\n"
	if got, want := before.String(), "level=WARN msg=warn c=3\nlevel=ERROR msg=error\n"+lines; got != want {
		t.Errorf("the first default got\n%swant\n%s", got, want)
	}
	if got := after.String(); got != lines {
		t.Errorf("the second default got\n%swant\n%s", got, lines)
	}
}

func TestEnabled(t *testing.T) {
	logger := defaultlog.Or(nil)
	for _, s := range []struct {
		of   slog.Level // of slog.Default
		ask  slog.Level
		want bool
	}{
		{slog.LevelDebug, slog.LevelDebug, false},
		{slog.LevelDebug, slog.LevelInfo, false},
		{slog.LevelDebug, slog.LevelWarn, true},
		{slog.LevelDebug, slog.LevelError, true},
		{slog.LevelError, slog.LevelWarn, false},
		{slog.LevelError, slog.LevelError, true},
	} {
		logtest.SetDefault(t, slog.NewTextHandler(new(bytes.Buffer), &slog.HandlerOptions{Level: s.of}))
		if got := logger.Enabled(t.Context(), s.ask); got != s.want {
			t.Errorf("default at %v: %v is enabled: %v", s.of, s.ask, got)
		}
	}
	logtest.SetDefault(t, slog.DiscardHandler)
	if n := testing.AllocsPerRun(100, func() { logger.Warn("dropped") }); n > 0 {
		t.Errorf("%v allocations for what is dropped", n)
	}
}

// all enables every level of a handler: the rules for handlers are tested with records of level Info.
type all struct{ slog.Handler }

func (all) Enabled(context.Context, slog.Level) bool   { return true }
func (h all) WithAttrs(attrs []slog.Attr) slog.Handler { return all{h.Handler.WithAttrs(attrs)} }
func (h all) WithGroup(name string) slog.Handler       { return all{h.Handler.WithGroup(name)} }

func TestRulesForHandlers(t *testing.T) {
	var b bytes.Buffer
	slogtest.Run(t, func(t *testing.T) slog.Handler {
		b.Reset()
		logtest.SetDefault(t, slog.NewJSONHandler(&b, nil))
		return all{defaultlog.Or(nil).Handler()}
	}, func(t *testing.T) map[string]any {
		got := make(map[string]any)
		noerr.Must(t, json.Unmarshal(b.Bytes(), &got))
		return got
	})
}
