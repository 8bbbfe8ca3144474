package programs

import (
	"log/slog"
	"strings"
	"sync"
)

// warnings collects what is logged as a warning or an error.
type warnings struct {
	mu    sync.Mutex
	lines []string
}

// taken returns what was collected since the last call.
func (w *warnings) taken() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := w.lines
	w.lines = nil
	return lines
}

// logger returns a Logger whose warnings and errors are collected.
func (w *warnings) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// Write takes a line.
func (w *warnings) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, strings.TrimSpace(string(line)))
	return len(line), nil
}
