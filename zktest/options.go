package zktest

import (
	"log/slog"
	"time"
)

// Options configure a [Server]. The zero value makes a server with ZooKeeper's defaults. Durations are rounded to milliseconds,
// the unit of the protocol; negative values count as zero.
type Options struct {
	// TickTime is ZooKeeper's tickTime: sessions expire in steps of it, counted from the first call of Serve. 0 means 2 s.
	TickTime time.Duration
	// MinSessionTimeout is the shortest session timeout granted. 0 means 2 ticks.
	MinSessionTimeout time.Duration
	// MaxSessionTimeout is the longest session timeout granted. 0 means 20 ticks.
	MaxSessionTimeout time.Duration
	// JuteMaxBuffer is the size of the largest packet accepted, in bytes; a larger one drops its connection. 0 means 1048575, as
	// ZooKeeper's jute.maxbuffer.
	JuteMaxBuffer int
	// SuperPassword is the password of the digest user "super", who may do everything. "" means that there is no such user.
	SuperPassword string
	// Logger receives the log. With nil nothing is logged.
	Logger *slog.Logger
}

// settings are the options with their defaults.
type settings struct {
	tick, minTimeout, maxTimeout int64  // ms
	maxPacket                    int    // bytes
	superDigest                  string // the digest ID of the user "super"; "" if there is none
	log                          *slog.Logger
}

func (o Options) settings() settings {
	s := settings{
		tick:       max(0, o.TickTime.Milliseconds()),
		minTimeout: max(0, o.MinSessionTimeout.Milliseconds()),
		maxTimeout: max(0, o.MaxSessionTimeout.Milliseconds()),
		maxPacket:  o.JuteMaxBuffer,
		log:        o.Logger,
	}
	if s.tick == 0 {
		s.tick = 2000
	}
	if s.minTimeout == 0 {
		s.minTimeout = 2 * s.tick
	}
	if s.maxTimeout == 0 {
		s.maxTimeout = 20 * s.tick
	}
	if s.maxPacket <= 0 {
		s.maxPacket = 0xfffff
	}
	if o.SuperPassword != "" {
		s.superDigest = digestID("super:" + o.SuperPassword)
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	return s
}

// TB is the part of [testing.TB] that [Start] and [StartVirtual] need.
type TB interface {
	Helper()
	Cleanup(f func())
	Fatalf(format string, args ...any)
}
