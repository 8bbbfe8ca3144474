package zktest

import (
	"log/slog"
	"time"
)

// Options configure a [Server]. The zero value is a server like a freshly installed one.
type Options struct {
	// TickTime is ZooKeeper's tickTime: sessions expire in steps of it. 0 means 2 s.
	TickTime time.Duration
	// MinSessionTimeout is the shortest session timeout granted. 0 means 2 ticks.
	MinSessionTimeout time.Duration
	// MaxSessionTimeout is the longest session timeout granted. 0 means 20 ticks.
	MaxSessionTimeout time.Duration
	// JuteMaxBuffer is the size of the largest packet accepted, in bytes; a larger one drops its
	// connection. 0 means 1048575, as ZooKeeper's jute.maxbuffer.
	JuteMaxBuffer int
	// Logger receives what the server does. nil means nothing is logged.
	Logger *slog.Logger
}

// TB is the part of [testing.TB] that [Start] and [StartVirtual] need.
type TB interface {
	Helper()
	Cleanup(f func())
	Fatalf(format string, args ...any)
}
