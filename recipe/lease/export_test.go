package lease

import (
	"context"
	"time"

	"github.com/kielgo/kiel/internal/sabotage"
	"github.com/kielgo/kiel/session"
)

// NewIn is New with the rules of ctx.
func NewIn(ctx context.Context, s *session.Session, path string, opts Options) (*NonBlockingLease, error) {
	return newLease(s, path, opts, sabotage.Of(ctx))
}

// SetClock gives a handle another machine's clock, which is compared with the servers'.
func SetClock(l *NonBlockingLease, clock func() time.Time) { l.clock = clock }

// Encode and Decode are a record's bytes.
func Encode(r Record) []byte { return r.bytes() }

// Decode reads a record.
func Decode(data []byte) (Record, error) { return parse(data) }
