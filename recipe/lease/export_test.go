package lease

import (
	"time"
)

// SetClock gives a handle another machine's clock, which is compared with the servers'.
func SetClock(l *NonBlockingLease, clock func() time.Time) { l.clock = clock }

// Encode and Decode are a record's bytes.
func Encode(r Record) []byte { return r.bytes() }

// Decode reads a record.
func Decode(data []byte) (Record, error) { return parse(data) }
