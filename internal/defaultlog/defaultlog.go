// Package defaultlog is the Logger of parts to which the program gave none: it passes warnings and errors to slog.Default and
// drops all else.
package defaultlog

import (
	"context"
	"log/slog"
)

// Or returns logger or, when it is nil, a Logger that passes records of level Warn and above to slog.Default. It asks for
// slog.Default at each record, so that a later slog.SetDefault counts.
func Or(logger *slog.Logger) *slog.Logger {
	if logger != nil {
		return logger
	}
	return slog.New(handler{})
}

// handler passes warnings and errors to the handler of slog.Default. It never changes.
type handler struct {
	// derive adds the groups and attributes of this handler to another one; nil if there are none.
	derive func(slog.Handler) slog.Handler
}

// Enabled reports whether a record of this level would be passed on and taken.
func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && slog.Default().Enabled(ctx, level)
}

// Handle passes the record on.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	return h.on(slog.Default().Handler()).Handle(ctx, r)
}

// WithAttrs returns a handler that adds attributes.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(attrs) == 0 {
		return h
	}
	return handler{func(to slog.Handler) slog.Handler { return h.on(to).WithAttrs(attrs) }}
}

// WithGroup returns a handler that puts later attributes into a group.
func (h handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return handler{func(to slog.Handler) slog.Handler { return h.on(to).WithGroup(name) }}
}

func (h handler) on(to slog.Handler) slog.Handler {
	if h.derive == nil {
		return to
	}
	return h.derive(to)
}
