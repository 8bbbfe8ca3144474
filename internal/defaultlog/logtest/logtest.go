// Package logtest is for tests of what goes to slog.Default.
package logtest

import (
	"bytes"
	"log" //nolint:depguard // slog.SetDefault redirects it
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// Log holds what was logged. Its methods may be called at any time.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Capture has slog.Default log to the Log that it returns, at every level, until the test ends. Such a test must not run beside
// others.
func Capture(t *testing.T) *Log {
	t.Helper()
	l := new(Log)
	SetDefault(t, slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: withoutTime}))
	return l
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
