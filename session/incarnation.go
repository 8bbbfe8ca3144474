package session

import (
	"context"
	"time"
)

// Incarnation is one unbroken stretch of trust in one ZooKeeper session.
type Incarnation struct {
	ctx context.Context //nolint:containedctx // an incarnation is a lifetime
}

// Context ends with cause ErrTrustLost, ErrSessionExpired or ErrClosed.
func (i *Incarnation) Context() context.Context { return i.ctx }

// Number grows by one with each incarnation.
func (i *Incarnation) Number() uint64 { return 0 }

// SessionID is the ZooKeeper session's id: the EphemeralOwner of what we create.
func (i *Incarnation) SessionID() int64 { return 0 }

// Timeout is the negotiated session timeout.
func (i *Incarnation) Timeout() time.Duration { return 0 }

// Trusted looks at the clock now.
func (i *Incarnation) Trusted() bool { return false }

// TrustEnd is the moment until which this incarnation may be trusted as known now; when it is over, when it ended.
func (i *Incarnation) TrustEnd() time.Time { return time.Time{} }
