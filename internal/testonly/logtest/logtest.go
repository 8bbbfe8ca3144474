// Package logtest is for tests of what goes to slog.Default.
package logtest

import (
	"bytes"
	"context"
	"fmt"
	"log" // slog.SetDefault redirects it
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Log holds what was logged. Its methods may be called at any time.
type Log struct {
	mu    sync.Mutex
	b     bytes.Buffer
	twice []string // what lines that have a key twice are
}

// Capture has slog.Default log to the Log that it returns, at every level, until the test ends. Such a test must not run beside
// others. It fails if a line has a key twice.
func Capture(t *testing.T) *Log {
	t.Helper()
	l := new(Log)
	text := slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: withoutTime})
	SetDefault(t, &onceEach{Handler: text, log: l})
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, twice := range l.twice {
			t.Error("a key stands twice in a line: " + twice)
		}
	})
	return l
}

// onceEach notes the lines that have a key twice.
type onceEach struct {
	slog.Handler
	log  *Log
	keys []string // those that all lines of the Logger have
}

// WithAttrs implements slog.Handler.
func (h *onceEach) WithAttrs(attrs []slog.Attr) slog.Handler {
	keys := slices.Clone(h.keys)
	for _, a := range attrs {
		keys = append(keys, a.Key)
	}
	return &onceEach{h.Handler.WithAttrs(attrs), h.log, keys}
}

// WithGroup implements slog.Handler. In a group keys stand for themselves.
func (h *onceEach) WithGroup(name string) slog.Handler { return h.Handler.WithGroup(name) }

// Handle implements slog.Handler.
func (h *onceEach) Handle(ctx context.Context, r slog.Record) error {
	keys := slices.Clone(h.keys)
	for a := range r.Attrs {
		keys = append(keys, a.Key)
	}
	slices.Sort(keys)
	all := fmt.Sprintf("%q has the keys %q", r.Message, keys)
	if n := len(keys); len(slices.Compact(keys)) < n {
		h.log.mu.Lock()
		h.log.twice = append(h.log.twice, all)
		h.log.mu.Unlock()
	}
	return h.Handler.Handle(ctx, r)
}

func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// SetDefault makes h the handler of slog.Default until the test ends.
func SetDefault(t *testing.T, h slog.Handler) {
	t.Helper()
	old := slog.Default()
	t.Cleanup(func() { setDefault(old) })
	setDefault(slog.New(h))
}

// Silence drops what goes to slog.Default, for TestMain: most tests give no Logger to what they let fail.
func Silence() { setDefault(slog.New(slog.DiscardHandler)) }

// setDefault leaves package log alone, which slog.SetDefault would redirect.
func setDefault(l *slog.Logger) {
	output, flags := log.Writer(), log.Flags()
	slog.SetDefault(l)
	log.SetOutput(output)
	log.SetFlags(flags)
}

// Write takes a line.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// String returns all lines.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Count returns how many lines contain all of parts.
func (l *Log) Count(parts ...string) int {
	n := 0
line:
	for line := range strings.Lines(l.String()) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue line
			}
		}
		n++
	}
	return n
}
